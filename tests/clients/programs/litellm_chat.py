"""litellm: `openai/` is /v1/chat/completions, `anthropic/` /v1/messages; the loop that its documentation shows."""

import os

import litellm
from shared import PARAMETERS, SYSTEM, TASKS, TOOLS, use

OFFER = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in TOOLS]
API = os.environ.get("API", "openai")
litellm.suppress_debug_info = True


async def run(key, model, streaming):
    got, messages = [], [{"role": "system", "content": SYSTEM}]
    for task in TASKS[model]:
        messages.append({"role": "user", "content": task})
        while True:
            said = {"model": f"{API}/{model}", "api_key": key, "messages": messages, "tools": OFFER}
            answer = await litellm.acompletion(**said, stream=streaming)
            if streaming:
                answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=messages)
            message = answer.choices[0].message
            got.append(message.model_dump())
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                result = use(call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not message.tool_calls:
                break
    return got

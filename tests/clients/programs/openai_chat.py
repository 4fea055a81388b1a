"""The openai package, /v1/chat/completions, with the loop that its documentation shows."""

from openai import AsyncOpenAI
from shared import PARAMETERS, SYSTEM, TASKS, TOOLS, use

OFFER = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in TOOLS]


async def run(key, model, streaming):
    got, messages = [], [{"role": "system", "content": SYSTEM}]
    async with AsyncOpenAI(api_key=key) as client:
        for task in TASKS[model]:
            messages.append({"role": "user", "content": task})
            while True:
                said = {"model": model, "messages": messages, "tools": OFFER}
                if streaming:
                    async with client.chat.completions.stream(**said) as stream:
                        got += [event.chunk.model_dump() async for event in stream if event.type == "chunk"]
                        answer = await stream.get_final_completion()
                else:
                    answer = await client.chat.completions.create(**said)
                got.append(answer.model_dump())
                message = answer.choices[0].message
                messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                for call in message.tool_calls or ():
                    result = use(call.function.name, call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
                if not message.tool_calls:
                    break
    return got

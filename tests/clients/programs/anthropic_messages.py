"""The anthropic package, /v1/messages, with the loop that its documentation shows."""

import json

from anthropic import AsyncAnthropic
from shared import PARAMETERS, SYSTEM, TASKS, TOOLS, use

OFFER = [{"name": name, "input_schema": PARAMETERS} for name in TOOLS]


async def run(key, model, streaming):
    got, messages = [], []
    async with AsyncAnthropic(api_key=key) as client:
        for task in TASKS[model]:
            messages.append({"role": "user", "content": task})
            while True:
                said = {
                    "model": model, "max_tokens": 1024, "system": SYSTEM, "messages": messages, "tools": OFFER,
                }  # fmt: skip
                if streaming:
                    async with client.messages.stream(**said) as stream:
                        got += [event.model_dump() async for event in stream]
                        answer = await stream.get_final_message()
                else:
                    answer = await client.messages.create(**said)
                got.append(answer.model_dump())
                messages.append({"role": "assistant", "content": answer.content})
                results = [
                    {
                        "type": "tool_result",
                        "tool_use_id": block.id,
                        "content": use(block.name, json.dumps(block.input)),
                    }
                    for block in answer.content
                    if block.type == "tool_use"
                ]
                if not results:
                    break
                messages.append({"role": "user", "content": results})
    return got

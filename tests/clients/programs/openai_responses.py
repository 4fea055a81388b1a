"""The openai package, /v1/responses: the history is sent anew, or named with previous_response_id."""

import os

from openai import AsyncOpenAI
from shared import PARAMETERS, SYSTEM, TASKS, TOOLS, use

OFFER = [{"type": "function", "name": name, "parameters": PARAMETERS, "strict": True} for name in TOOLS]
PREVIOUS = os.environ.get("PREVIOUS") == "1"


async def run(key, model, streaming):
    got, history, before = [], [], None
    async with AsyncOpenAI(api_key=key) as client:
        for task in TASKS[model]:
            said = [{"role": "user", "content": task}]
            while said:
                history += said
                asked = {"model": model, "instructions": SYSTEM, "tools": OFFER, "input": history}
                if PREVIOUS and before:
                    asked |= {"input": said, "previous_response_id": before}
                if streaming:
                    async with client.responses.stream(**asked) as stream:
                        got += [event.model_dump() async for event in stream]
                        answer = await stream.get_final_response()
                else:
                    answer = await client.responses.create(**asked)
                got.append(answer.model_dump())
                before = answer.id
                history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
                said = [
                    {"type": "function_call_output", "call_id": i.call_id, "output": use(i.name, i.arguments)}
                    for i in answer.output
                    if i.type == "function_call"
                ]
    return got

"""instructor: an answer of a given form, by a tool that the model must call."""

import instructor
from openai import AsyncOpenAI
from pydantic import BaseModel
from shared import SYSTEM, TASKS


class Reply(BaseModel):
    """What the desk says."""

    answer: str


async def run(key, model, streaming):
    got, messages = [], [{"role": "system", "content": SYSTEM}]
    async with AsyncOpenAI(api_key=key) as openai:
        client = instructor.from_openai(openai)
        for task in TASKS[model]:
            messages.append({"role": "user", "content": task})
            reply = await client.chat.completions.create(model=model, messages=messages, response_model=Reply)
            got.append(reply.answer)
            messages.append({"role": "assistant", "content": reply.answer})
    return got

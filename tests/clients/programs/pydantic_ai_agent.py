"""pydantic-ai: `openai:` is /v1/responses, `openai-chat:` /v1/chat/completions."""

import json
import os

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from shared import SYSTEM, TASKS, add, main, multiply

API = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[os.environ.get("API", "responses")]


async def hear(_context, events):
    async for _ in events:
        pass


async def run(key, model, streaming):
    async with AsyncOpenAI(api_key=key) as client:
        agent = Agent(
            API(model, provider=OpenAIProvider(openai_client=client)), instructions=SYSTEM, tools=[add, multiply]
        )
        history, answers = [], []
        for task in TASKS[model]:
            result = await agent.run(task, message_history=history, event_stream_handler=hear if streaming else None)
            history = result.all_messages()
            answers.append(result.output)
    return [answers, json.loads(result.all_messages_json())]


if __name__ == "__main__":
    main(run)

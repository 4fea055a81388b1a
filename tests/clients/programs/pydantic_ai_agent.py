"""pydantic-ai: `openai:` is /v1/responses, `openai-chat:` /v1/chat/completions, `anthropic:` /v1/messages."""

import json
import os

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from shared import SYSTEM, TASKS, add, multiply

API = os.environ.get("API", "responses")


def speaker(key, model):
    if API == "anthropic":
        client = AsyncAnthropic(api_key=key)
        return client, AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))
    client = AsyncOpenAI(api_key=key)
    kind = OpenAIChatModel if API == "chat" else OpenAIResponsesModel
    return client, kind(model, provider=OpenAIProvider(openai_client=client))


async def hear(_context, events):
    async for _ in events:
        pass


async def run(key, model, streaming):
    client, speaks = speaker(key, model)
    async with client:
        agent = Agent(speaks, instructions=SYSTEM, tools=[add, multiply])
        history, answers = [], []
        for task in TASKS[model]:
            result = await agent.run(task, message_history=history, event_stream_handler=hear if streaming else None)
            history = result.all_messages()
            answers.append(result.output)
    return [answers, json.loads(result.all_messages_json())]

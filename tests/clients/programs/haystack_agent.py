"""Haystack's agent with its generator for OpenAI."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from shared import SYSTEM, TASKS, add, multiply


def run(key, model, streaming):
    generator = OpenAIChatGenerator(model=model, api_key=Secret.from_token(key))
    tools = [create_tool_from_function(tool) for tool in (add, multiply)]
    agent = Agent(chat_generator=generator, tools=tools, system_prompt=SYSTEM)
    agent.warm_up()
    messages = []
    for task in TASKS[model]:
        messages = [*messages, ChatMessage.from_user(task)]
        messages = agent.run(
            messages=[m for m in messages if not m.is_from("system")],
            streaming_callback=(lambda _: None) if streaming else None,
        )["messages"]
    return [message.to_dict() for message in messages]

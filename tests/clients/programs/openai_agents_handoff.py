"""The OpenAI Agents SDK with two agents: the first hands over to the second, as its documentation has it."""

import os

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents.extensions.handoff_prompt import prompt_with_handoff_instructions
from openai import AsyncOpenAI
from shared import add

API = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[os.environ.get("API", "responses")]


async def run(key, model, streaming):
    async with AsyncOpenAI(api_key=key) as client:
        speaker = API(model=model, openai_client=client)
        clerk = Agent(
            name="Clerk",
            instructions=prompt_with_handoff_instructions("You are the clerk. Do the sums."),
            model=speaker,
            tools=[function_tool(add)],
        )
        triage = Agent(
            name="Triage",
            instructions=prompt_with_handoff_instructions("You are the triage agent. Hand over to who can help."),
            model=speaker,
            handoffs=[clerk],
        )
        if streaming:
            result = Runner.run_streamed(triage, "What is 2 and 3?")
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(triage, "What is 2 and 3?")
    return [result.final_output, result.last_agent.name]

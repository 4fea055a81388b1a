"""The OpenAI Agents SDK: /v1/responses as it comes, /v1/chat/completions if told. With the model `handoff` two agents,
of which the first hands over to the second, as its documentation has it."""

import os

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents.extensions.handoff_prompt import prompt_with_handoff_instructions as prompt
from openai import AsyncOpenAI
from shared import SYSTEM, TASKS, add, multiply

API = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[os.environ.get("API", "responses")]


def one(speaker):
    tools = [function_tool(add), function_tool(multiply)]
    return Agent(name="desk", instructions=SYSTEM, model=speaker, tools=tools, model_settings=ModelSettings())


def team(speaker):
    clerk, triage = "You are the clerk. Do the sums.", "You are the triage agent. Hand over to who can help."
    second = Agent(name="Clerk", instructions=prompt(clerk), model=speaker, tools=[function_tool(add)])
    return Agent(name="Triage", instructions=prompt(triage), model=speaker, handoffs=[second])


async def run(key, model, streaming):
    async with AsyncOpenAI(api_key=key) as client:
        agent = (team if model == "handoff" else one)(API(model=model, openai_client=client))
        said, answers = [], []
        for task in TASKS[model]:
            said = [*said, {"role": "user", "content": task}]
            if streaming:
                result = Runner.run_streamed(agent, said)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, said)
            said = result.to_input_list()
            answers.append(result.final_output)
    return [answers, said, result.last_agent.name]

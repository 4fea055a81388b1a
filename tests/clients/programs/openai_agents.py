"""The OpenAI Agents SDK: /v1/responses as it comes, /v1/chat/completions if told."""

import os

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from shared import SYSTEM, TASKS, add, multiply

API = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[os.environ.get("API", "responses")]


async def run(key, model, streaming):
    async with AsyncOpenAI(api_key=key) as client:
        agent = Agent(
            name="desk",
            instructions=SYSTEM,
            model=API(model=model, openai_client=client),
            tools=[function_tool(add), function_tool(multiply)],
            model_settings=ModelSettings(),
        )
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
    return [answers, said]

"""smolagents: tool calls and results go into the history as text."""

from shared import TASKS, add, multiply
from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool


def run(key, model, streaming):
    agent = ToolCallingAgent(
        tools=[tool(add), tool(multiply)],
        model=OpenAIServerModel(model, api_key=key),
        stream_outputs=streaming,
        verbosity_level=LogLevel.OFF,
    )
    answers = [agent.run(task, reset=number == 0) for number, task in enumerate(TASKS[model])]
    return [answers, [[str(part) for part in (message.content or [])] for message in agent.write_memory_to_messages()]]

"""CrewAI: one agent, one task after the other in one crew."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from shared import SYSTEM, TASKS, add, multiply


def run(key, model, streaming):
    llm = LLM(model=model, provider="openai", api_key=key, stream=streaming)
    agent = Agent(role="desk", goal=SYSTEM, backstory=SYSTEM, llm=llm, tools=[tool(add), tool(multiply)])
    tasks = [Task(description=task, expected_output="the results", agent=agent) for task in TASKS[model]]
    return [str(each.raw) for each in Crew(agents=[agent], tasks=tasks).kickoff().tasks_output]

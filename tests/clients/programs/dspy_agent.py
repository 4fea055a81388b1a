"""DSPy's ReAct at its defaults: each step is a conversation of its own, with the past in the user's words."""

import dspy
from shared import TASKS, add, multiply


async def run(key, model, streaming):
    agent = dspy.ReAct("question -> answer", tools=[add, multiply])
    answers = []
    with dspy.context(lm=dspy.LM(f"openai/{model}", api_key=key, cache=False)):
        for task in TASKS[model]:
            answers.append((await agent.acall(question=task)).answer)
    return answers

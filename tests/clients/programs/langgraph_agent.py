"""LangGraph with langchain-openai: /v1/chat/completions as it comes, /v1/responses if told."""

import os

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from shared import SYSTEM, TASKS, add, main, multiply

RESPONSES = {"use_responses_api": True} if os.environ.get("API") == "responses" else {}


async def run(key, model, streaming):
    llm = ChatOpenAI(model=model, api_key=key, streaming=streaming, **RESPONSES)
    agent = create_react_agent(llm, [add, multiply], prompt=SYSTEM)
    messages = []
    for task in TASKS[model]:
        messages = [*messages, {"role": "user", "content": task}]
        messages = (await agent.ainvoke({"messages": messages}))["messages"]
    return [message.model_dump() for message in messages]


if __name__ == "__main__":
    main(run)

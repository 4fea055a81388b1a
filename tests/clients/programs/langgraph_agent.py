"""LangGraph: with langchain-openai /v1/chat/completions as it comes and /v1/responses if told, with langchain-anthropic
/v1/messages."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from shared import SYSTEM, TASKS, add, multiply

API = os.environ.get("API", "chat")


async def run(key, model, streaming):
    if API == "anthropic":
        llm = ChatAnthropic(model=model, api_key=key, streaming=streaming)
    else:
        more = {"use_responses_api": True} if API == "responses" else {}
        llm = ChatOpenAI(model=model, api_key=key, streaming=streaming, **more)
    agent = create_react_agent(llm, [add, multiply], prompt=SYSTEM)
    messages = []
    for task in TASKS[model]:
        messages = [*messages, {"role": "user", "content": task}]
        messages = (await agent.ainvoke({"messages": messages}))["messages"]
    return [message.model_dump() for message in messages]

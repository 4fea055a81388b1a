"""AutoGen's assistant agent."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from shared import SYSTEM, TASKS, add, multiply

INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)


async def run(key, model, streaming):
    client = OpenAIChatCompletionClient(model=model, api_key=key, model_info=INFO)
    agent = AssistantAgent(
        "desk",
        client,
        tools=[add, multiply],
        system_message=SYSTEM,
        model_client_stream=streaming,
        max_tool_iterations=5,
    )
    said = [(await agent.run(task=task)).messages[-1].content for task in TASKS[model]]
    context = await agent.model_context.get_messages()
    await client.close()
    return [said, [message.model_dump() for message in context]]

"""The client configurations under test: which program, which endpoint, what it can do."""

from pathlib import Path

import msgspec

from tests.clients.engine.script import REPEATED, SCRIPTS, TEXT, VARIED

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HERE = Path(__file__).parent
PLAIN, LITELLM, CREWAI = ".venv-clients", ".venv-clients-litellm", ".venv-clients-crewai"
"""Made by `make clients`: the clients live in environments of their own, as at a user's."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program and how it is started."""

    name: str
    program: str
    """Path below this directory."""
    endpoint: str
    env: dict[str, str] = {}
    refuses: tuple[str, ...] = ()
    """Scripts that the client itself turns down, whoever serves them, or that are not of its kind."""
    venv: str = PLAIN
    whole: bool = True
    """It sends the conversation along with each call, so that a run can be told to be one."""
    why_not: str = ""
    """Why its calls are not trained on, whatever the engine tells of them."""

    @property
    def command(self) -> list[str]:
        python = HERE.parents[1] / self.venv / "bin/python"
        return ["node" if self.program.endswith(".mjs") else str(python), str(HERE / self.program)]


class Run(msgspec.Struct, frozen=True):
    """One conversation. Its key is the API key that it is held with, which the tap never keeps."""

    client: str
    script: str
    streamed: bool
    number: int

    @property
    def mode(self) -> str:
        return "streamed" if self.streamed else "plain"

    @property
    def key(self) -> str:
        return f"{self.client}|{self.mode}|{self.script}|{self.number}".replace(" ", "_")


CLIENTS = (
    Client(name="openai chat", program="programs/openai_chat.py", endpoint=CHAT),
    Client(name="openai responses", program="programs/openai_responses.py", endpoint=RESPONSES),
    Client(
        name="openai responses, previous id",
        program="programs/openai_responses.py",
        endpoint=RESPONSES,
        env={"PREVIOUS": "1"},
    ),
    # It raises when an id comes twice: "Model reused a completed tool call ID for a different invocation".
    Client(
        name="openai-agents responses",
        program="programs/openai_agents.py",
        endpoint=RESPONSES,
        refuses=(REPEATED,),
    ),
    Client(
        name="openai-agents chat",
        program="programs/openai_agents.py",
        endpoint=CHAT,
        env={"API": "chat"},
        refuses=(REPEATED,),
    ),
    Client(name="pydantic-ai responses", program="programs/pydantic_ai_agent.py", endpoint=RESPONSES),
    Client(name="pydantic-ai chat", program="programs/pydantic_ai_agent.py", endpoint=CHAT, env={"API": "chat"}),
    Client(name="langgraph chat", program="programs/langgraph_agent.py", endpoint=CHAT),
    Client(
        name="langgraph responses",
        program="programs/langgraph_agent.py",
        endpoint=RESPONSES,
        env={"API": "responses"},
    ),
    Client(name="anthropic messages", program="programs/anthropic_messages.py", endpoint=MESSAGES),
    Client(
        name="pydantic-ai messages",
        program="programs/pydantic_ai_agent.py",
        endpoint=MESSAGES,
        env={"API": "anthropic"},
    ),
    Client(
        name="langgraph messages", program="programs/langgraph_agent.py", endpoint=MESSAGES, env={"API": "anthropic"}
    ),
    Client(name="haystack chat", program="programs/haystack_agent.py", endpoint=CHAT),
    Client(name="litellm chat", program="programs/litellm_chat.py", endpoint=CHAT, venv=LITELLM),
    Client(
        name="litellm messages",
        program="programs/litellm_chat.py",
        endpoint=MESSAGES,
        env={"API": "anthropic"},
        venv=LITELLM,
    ),
    # Each task of a crew is a conversation of its own, whatever was said before.
    Client(
        name="crewai chat",
        program="programs/crewai_agent.py",
        endpoint=CHAT,
        refuses=(TEXT, VARIED),
        venv=CREWAI,
    ),
    # Every step is a conversation of its own: the past stands in the user's words.
    Client(
        name="dspy chat",
        program="programs/dspy_agent.py",
        endpoint=CHAT,
        refuses=(REPEATED, TEXT, VARIED),
        venv=LITELLM,
        whole=False,
    ),
    # It has the model call a tool, whose arguments are the answer.
    Client(
        name="instructor chat",
        program="programs/instructor_chat.py",
        endpoint=CHAT,
        refuses=(REPEATED, TEXT, VARIED),
        venv=LITELLM,
    ),
    # A coding agent, which has work for its shell or nothing to do.
    Client(
        name="mini-swe-agent chat",
        program="programs/mini_swe_agent.py",
        endpoint=CHAT,
        refuses=(REPEATED, TEXT, VARIED),
        venv=LITELLM,
    ),
    # It asks for tool_choice=required, and tells each call again in words of its own.
    Client(
        name="smolagents chat",
        program="programs/smolagents_agent.py",
        endpoint=CHAT,
        why_not="3 rows",
    ),
    Client(name="autogen chat", program="programs/autogen_agent.py", endpoint=CHAT),
    Client(name="openai-js chat", program="js/openai_chat.mjs", endpoint=CHAT),
    Client(name="openai-js responses", program="js/openai_responses.mjs", endpoint=RESPONSES),
    Client(name="ai-sdk responses", program="js/ai_sdk.mjs", endpoint=RESPONSES),
    Client(name="ai-sdk chat", program="js/ai_sdk.mjs", endpoint=CHAT, env={"API": "chat"}),
    Client(name="ai-sdk messages", program="js/ai_sdk.mjs", endpoint=MESSAGES, env={"API": "anthropic"}),
)


def runs(client: Client, count: int, scripts: tuple[str, ...] = SCRIPTS) -> list[Run]:
    """`count` runs of each script and mode."""
    return [
        Run(client.name, script, streamed, number)
        for script in scripts
        for streamed in (False, True)
        for number in range(count)
    ]

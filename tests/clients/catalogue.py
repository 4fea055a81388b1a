"""The client configurations under test: which program, which endpoint, what it can do."""

from pathlib import Path

import msgspec

from tests.clients.engine.script import REPEATED, SCRIPTS

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-clients/bin/python"
"""Made by `make clients`: the clients live in an environment of their own, as at a user's."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program and how it is started."""

    name: str
    program: str
    """Path below this directory."""
    endpoint: str
    env: dict[str, str] = {}
    refuses: tuple[str, ...] = ()
    """Scripts that the client itself turns down, whoever serves them."""

    @property
    def has_tokens(self) -> bool:
        """Whether the engine gives token ids there."""
        return self.endpoint == CHAT

    @property
    def command(self) -> list[str]:
        return ["node" if self.program.endswith(".mjs") else str(PYTHON), str(HERE / self.program)]


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
    Client(name="smolagents chat", program="programs/smolagents_agent.py", endpoint=CHAT),
    Client(name="autogen chat", program="programs/autogen_agent.py", endpoint=CHAT),
    Client(name="openai-js chat", program="js/openai_chat.mjs", endpoint=CHAT),
    Client(name="openai-js responses", program="js/openai_responses.mjs", endpoint=RESPONSES),
    Client(name="ai-sdk responses", program="js/ai_sdk.mjs", endpoint=RESPONSES),
    Client(name="ai-sdk chat", program="js/ai_sdk.mjs", endpoint=CHAT, env={"API": "chat"}),
)


def runs(client: Client, count: int, scripts: tuple[str, ...] = SCRIPTS) -> list[Run]:
    """`count` runs of each script and mode."""
    return [
        Run(client.name, script, streamed, number)
        for script in scripts
        for streamed in (False, True)
        for number in range(count)
    ]

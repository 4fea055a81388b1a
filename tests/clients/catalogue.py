"""The client configurations under test: which program, which endpoint, what it can do."""

from pathlib import Path
from typing import Any

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
        if self.program.endswith(".mjs"):
            return ["node", str(HERE / self.program)]
        python = HERE.parents[1] / self.venv / "bin/python"
        return [str(python), str(HERE / "programs/shared.py"), Path(self.program).stem]


class Run(msgspec.Struct, frozen=True):
    """One conversation. Its key is the API key that it is held with, which the tap never keeps."""

    client: str
    script: str
    streamed: bool
    number: int

    @property
    def key(self) -> str:
        mode = "streamed" if self.streamed else "plain"
        return f"{self.client}|{mode}|{self.script}|{self.number}".replace(" ", "_")


def _program(name: str, path: str, endpoint: str, api: str = "", **more: Any) -> Client:
    """A client whose program is told which API to speak, if it speaks several."""
    env = {"API": api} if api else {}
    program = path if path.endswith(".mjs") else f"programs/{path}.py"
    return Client(name=name, program=program, endpoint=endpoint, **{"env": env, **more})


AGENTS, PYDANTIC, LANGGRAPH = "openai_agents", "pydantic_ai_agent", "langgraph_agent"
WORK_ALONE = (REPEATED, TEXT, VARIED)
CLIENTS = (
    _program("openai chat", "openai_chat", CHAT),
    _program("openai responses", "openai_responses", RESPONSES),
    _program("openai responses, previous id", "openai_responses", RESPONSES, env={"PREVIOUS": "1"}),
    # It raises when an id comes twice: "Model reused a completed tool call ID for a different invocation".
    _program("openai-agents responses", AGENTS, RESPONSES, refuses=(REPEATED,)),
    _program("openai-agents chat", AGENTS, CHAT, "chat", refuses=(REPEATED,)),
    _program("pydantic-ai responses", PYDANTIC, RESPONSES),
    _program("pydantic-ai chat", PYDANTIC, CHAT, "chat"),
    _program("langgraph chat", LANGGRAPH, CHAT),
    _program("langgraph responses", LANGGRAPH, RESPONSES, "responses"),
    _program("anthropic messages", "anthropic_messages", MESSAGES),
    _program("pydantic-ai messages", PYDANTIC, MESSAGES, "anthropic"),
    _program("langgraph messages", LANGGRAPH, MESSAGES, "anthropic"),
    _program("haystack chat", "haystack_agent", CHAT),
    _program("litellm chat", "litellm_chat", CHAT, venv=LITELLM),
    _program("litellm messages", "litellm_chat", MESSAGES, "anthropic", venv=LITELLM),
    # Each task of a crew is a conversation of its own, whatever was said before.
    _program("crewai chat", "crewai_agent", CHAT, refuses=(TEXT, VARIED), venv=CREWAI),
    # Every step is a conversation of its own: the past stands in the user's words.
    _program("dspy chat", "dspy_agent", CHAT, refuses=WORK_ALONE, venv=LITELLM, whole=False),
    # It has the model call a tool, whose arguments are the answer.
    _program("instructor chat", "instructor_chat", CHAT, refuses=WORK_ALONE, venv=LITELLM),
    # A coding agent, which has work for its shell or nothing to do.
    _program("mini-swe-agent chat", "mini_swe_agent", CHAT, refuses=WORK_ALONE, venv=LITELLM),
    # It asks for tool_choice=required, and tells each call again in words of its own.
    _program("smolagents chat", "smolagents_agent", CHAT, why_not="3 rows"),
    _program("autogen chat", "autogen_agent", CHAT),
    _program("openai-js chat", "js/openai_chat.mjs", CHAT),
    _program("openai-js responses", "js/openai_responses.mjs", RESPONSES),
    _program("ai-sdk responses", "js/ai_sdk.mjs", RESPONSES),
    _program("ai-sdk chat", "js/ai_sdk.mjs", CHAT, "chat"),
    _program("ai-sdk messages", "js/ai_sdk.mjs", MESSAGES, "anthropic"),
)


def runs(client: Client, count: int, scripts: tuple[str, ...] = SCRIPTS) -> list[Run]:
    """`count` runs of each script and mode."""
    return [
        Run(client.name, script, streamed, number)
        for script in scripts
        for streamed in (False, True)
        for number in range(count)
    ]

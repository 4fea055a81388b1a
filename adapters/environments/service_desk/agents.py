"""The desk's three agents: their tools, the dialect in which the tools answer, and the drift that renames some.

Production agents and the sandbox read the same drift file, so their desks drift together, as two deployments of one
changed service would.
"""

import json
from typing import Any, Literal

import msgspec

from adapters.environments.drift_file import DriftRecord, tool
from adapters.environments.service_desk.grammar import Wish

Answer = dict[str, str]
"""What a tool found or did; `error` (and `status`, of HTTP) when it was refused."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One of the desk's agents."""

    letter: str
    """The family of its tasks."""
    system: str
    """Its system text."""
    dialect: Literal["json", "text", "http"]
    """How its tools answer."""
    tools: dict[str, tuple[str, ...]]
    """Names, as they are before any drift, with their parameters."""
    wishes: tuple[Wish, ...]


REFUNDS = Agent(
    letter="R",
    system="You handle refunds.",
    dialect="json",
    tools={
        "lookup_order": ("order",),
        "check_policy": ("order",),
        "create_refund": ("order", "amount"),
        "send_label": ("order",),
    },
    wishes=("refund", "label"),
)
ORDERS = Agent(
    letter="O",
    system="You handle orders.",
    dialect="text",
    tools={
        "orders.lookup": ("order",),
        "orders.hold": ("order",),
        "orders.cancel": ("order",),
        "orders.track": ("parcel",),
        "orders.move": ("order", "city"),
    },
    wishes=("cancel", "track", "move"),
)
ACCOUNTS = Agent(
    letter="A",
    system="You handle accounts.",
    dialect="http",
    tools={
        "findUser": ("email",),
        "verifyUser": ("user",),
        "resetPassword": ("user",),
        "unlockUser": ("user",),
        "closeAccount": ("user",),
    },
    wishes=("reset", "unlock", "close"),
)
AGENTS = {agent.letter: agent for agent in (REFUNDS, ORDERS, ACCOUNTS)}
ROLES = {name: parameters for agent in AGENTS.values() for name, parameters in agent.tools.items()}
"""All tools by their role, which is also their name before any drift."""


class Drift(DriftRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the desk: `Drift(rename={"create_refund": "zokari"})`."""

    rename: dict[str, str] = {}
    """Role to new tool name."""

    def __post_init__(self) -> None:
        for role in self.rename:
            if role not in ROLES:
                raise ValueError(f"drift: there is no tool {role!r} to rename; tools: {', '.join(ROLES)}")
        names = [self.rename.get(role, role) for role in ROLES]
        if len(set(names)) < len(names):
            raise ValueError("drift: two tools would have the same name")

    def name(self, role: str) -> str:
        """How the tool in `role` is called now."""
        return self.rename.get(role, role)

    def role(self, agent: Agent, name: str) -> str | None:
        """Which of `agent`'s tools is called `name` now; None if there is none."""
        return next((role for role in agent.tools if self.name(role) == name), None)

    def tools(self, agent: Agent) -> list[dict[str, Any]]:
        return [tool(self.name(role), parameters) for role, parameters in agent.tools.items()]


NO_DRIFT = Drift()


def spoken(agent: Agent, answer: Answer) -> str:
    """`answer` in the dialect of the agent's tools."""
    if agent.dialect == "json":
        return json.dumps({key: value for key, value in answer.items() if key != "status"})
    error = answer.get("error")
    if agent.dialect == "text":
        return f"Error: {error}." if error else ", ".join(f"{key} {value}" for key, value in answer.items()) + "."
    if error:
        return f"HTTP {answer.get('status', '400')} {error}"
    return "HTTP 200 " + "&".join(f"{key}={value}" for key, value in answer.items())

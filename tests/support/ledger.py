"""A small world that is no travel desk: accounts, no closing tool, errors in words, a hidden precondition, lists.

What the questioner must find out here by itself: that `transfer` wants `unlock` first, that account numbers come from
`accounts`, that an amount is a number, and that nothing ends an episode.
"""

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed

OWNERS = ("Ada", "Grace", "Edsger", "Barbara")


def _tool(name: str, description: str, required: Sequence[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("accounts", "Part of the ledger. List the accounts of an owner.", ["owner"], owner={"type": "string"}),
    _tool("unlock", "Part of the ledger. Unlock an account.", ["account"], account={"type": "string"}),
    _tool(
        "deposit", "Part of the ledger. Put money into an account.", ["account", "amount"],
        account={"type": "string"}, amount={"type": "integer"},
    ),
    _tool(
        "label", "Part of the ledger. Give an account a colour.", ["account", "colour"],
        account={"type": "string"}, colour={"type": "string", "enum": ["red", "blue"]},
    ),
]  # fmt: skip


class LedgerEpisode:
    """One attempt; the world's own goal is to label the owner's account red."""

    def __init__(self, task: Task) -> None:
        rng = Random(task.spec["seed"])
        self.messages = [{"role": "user", "content": task.goal}]
        self.tools = TOOLS
        self._numbers = {owner: f"AC-{rng.randrange(1000, 9999)}" for owner in OWNERS}
        self._books = {number: {"balance": 0, "colour": ""} for number in self._numbers.values()}
        self._unlocked: set[str] = set()
        self._owner = task.spec["owner"]
        self._done = False
        self.closed = 0

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        if not calls:
            self._done = True
            return Observation("", True)
        return Observation(self._answer(calls[0]), False)

    def _answer(self, call: ToolCall) -> str:
        given = msgspec.json.decode(call.arguments)
        if call.name == "accounts":
            number = self._numbers.get(given.get("owner"))
            return msgspec.json.encode({"accounts": [{"account": number}]}).decode() if number else "Error: no owner"
        book = self._books.get(given.get("account"))
        if book is None:
            return "Error: no such account"
        if call.name == "unlock":
            self._unlocked.add(given["account"])
            return "unlocked"
        if call.name == "label":
            book["colour"] = given["colour"]
            return "labelled"
        if given["account"] not in self._unlocked:
            return "Error: locked"
        book["balance"] += given["amount"]
        return msgspec.json.encode({"balance": book["balance"]}).decode()

    async def evaluate(self) -> float:
        return float(self._done and self._books[self._numbers[self._owner]]["colour"] == "red")

    async def state(self) -> dict[str, Any]:
        return copy.deepcopy(self._books)

    async def aclose(self) -> None:
        self.closed += 1


class Ledger:
    """Worlds by seed; the instances number `lost` (by count of resets) break down."""

    name = "ledger"

    def __init__(self, lost: frozenset[int] = frozenset()) -> None:
        self.lost = lost
        self.opened: list[LedgerEpisode] = []
        self.resets = 0

    def profile(self) -> Profile:
        return Profile(name=self.name, description="Accounts and their owners.")

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        owner = OWNERS[seed % len(OWNERS)]
        return Task(
            id=derived_id("ledger", split, seed),
            goal=f"Mark the account of {owner} red.",
            environment=self.name,
            spec={"seed": f"{split}-{seed}", "owner": owner},
        )

    async def reset(self, task: Task) -> LedgerEpisode:
        self.resets += 1
        if self.resets in self.lost or (len(self.lost) == 1 and -1 in self.lost):
            raise EnvironmentFailed("the ledger is being audited")
        self.opened.append(LedgerEpisode(task))
        return self.opened[-1]

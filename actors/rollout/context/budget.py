"""The token budget of prompts: what goes out was counted by the engine's own renderer, or cannot be too long.

A prompt is sent without counting only if it must fit: if it goes on from one whose count is known, and even `LOOSEST`
tokens for each byte of what was added, and `FRAME` for each message, stay below the budget. (A token is a byte or more
in byte-level and byte-fallback vocabularies; twice that leaves room for templates that escape what they are given.)
Else it is rendered: one request more for that turn.

To choose what to drop costs no request: the counts of messages are known from the prompts in which they were new.
These are estimates, as a tokenizer may join what meets; a plan is only rendered when it fits by `MARGIN`, so that it is
nearly never rendered twice. Whoever ends up longer than counted after all is lost by name (`BudgetExceeded`).
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from actors.rollout.context import ContextTemplate, History, Message
from actors.rollout.errors import EpisodeLost

LOOSEST = 2
"""Tokens a byte of JSON at most."""
FRAME = 64
"""Tokens around a message at most."""
MARGIN = 16
"""Tokens that estimates keep clear of the budget."""
_FORGETTING = 0.95
_TRIES = 16
"""How often a template may be asked to shrink without having to become shorter, and plans be rendered, for one turn."""

Render = Callable[[Sequence[Message], Sequence[Message]], Awaitable[list[int]]]
"""Messages and tools to the ids of the prompt."""


class Counts:
    """How many tokens the prompts of one episode have, as far as is known.

    Args:
        render: the engine's.
    """

    def __init__(self, render: Render) -> None:
        self._render = render
        self._known: dict[bytes, int] = {}
        """Tokens by message, and by tool list, in JSON."""
        self._last: list[bytes] = []
        self._total = 0
        self._excess = 0
        """By how much the newest prompt was longer than its parts."""
        self._ratio = 0.5
        """Tokens a byte that new messages are taken to have: the most that any had, slowly forgotten."""
        self.rendered = 0
        """Requests that counting has cost."""

    def learn(self, messages: Sequence[Message], tools: Sequence[Message], total: int) -> None:
        """The engine's prompt for `messages` and `tools` has `total` tokens."""
        parts = _parts(messages, tools)
        new = [part for part in dict.fromkeys(parts) if part not in self._known]
        left = total - sum(self._known.get(part, 0) for part in parts)
        size = sum(map(len, new))
        if new:
            self._ratio = max(left / size, _FORGETTING * self._ratio)
            self._known.update({part: max(1, round(left * len(part) / size)) for part in new})
        self._excess = max(0, total - sum(self._known[part] for part in parts))
        self._last, self._total = parts, total

    def most(self, messages: Sequence[Message], tools: Sequence[Message]) -> int:
        """Tokens that the prompt cannot have more of."""
        parts = _parts(messages, tools)
        known = bool(self._last) and parts[: len(self._last)] == self._last
        new = parts[len(self._last) :] if known else parts
        return (self._total if known else 0) + sum(LOOSEST * len(part) + FRAME for part in new)

    def estimate(self, messages: Sequence[Message], tools: Sequence[Message]) -> int:
        """Tokens that the prompt should have."""
        parts = _parts(messages, tools)
        return self._excess + sum(self._known.get(part) or round(self._ratio * len(part)) for part in parts)

    async def count(self, messages: Sequence[Message], tools: Sequence[Message]) -> int:
        """Tokens that the prompt has, for one request."""
        self.rendered += 1
        total = len(await self._render(messages, tools))
        self.learn(messages, tools, total)
        return total


async def fit(
    template: ContextTemplate,
    history: History,
    tools: Sequence[Message],
    counts: Counts,
    sent: Callable[[Sequence[Message]], list[Message]] = list,
) -> list[Message] | None:
    """The messages of the next request, within the template's budget; None if the template cannot make them fit.

    Args:
        sent: what is made of messages on their way, lessons say: it counts.

    Raises:
        EpisodeLost: the engine broke down, or the template says that it shrinks and does not.
    """
    budget, idle = template.budget, 0
    shortest = -1
    while True:
        messages = template.messages(history)
        whole = sent(messages)
        if counts.most(whole, tools) <= budget:
            return messages
        estimate = counts.estimate(whole, tools)
        idle = 0 if shortest < 0 or estimate < shortest else idle + 1
        shortest = estimate if shortest < 0 else min(shortest, estimate)
        if idle > _TRIES:
            name = type(template).__name__
            raise EpisodeLost("context_stuck", f"{name}.shrink says that it shrinks, and {estimate} tokens stay")
        if estimate + MARGIN > budget and template.shrink(history):
            continue
        if await counts.count(whole, tools) <= budget:
            return messages
        if not template.shrink(history):
            return None


def _parts(messages: Sequence[Message], tools: Sequence[Message]) -> list[bytes]:
    return [msgspec.json.encode(part) for part in (list(tools), *messages)]

"""Context templates: what of an episode's history stands in the next request.

    opening, turns so far -> `ContextTemplate.messages` -> engine -> a turn with its exact ids -> `Rows`

A template speaks in messages, never in ids: the engine alone renders, and a row is what the engine rendered and sampled
(`actors.rollout.harness.rows`). So every template is trained on exactly what it was played with, one that somebody else
wrote too; where it rewrites the history a new row begins.

A template may have a token budget for its prompts. `actors.rollout.context.budget` counts with the engine's own
renderer before a request goes out, and asks the template to `shrink` the history until it fits. Shipped are those of
`SHIPPED` in `actors.rollout.context.named` (AgentEvolver, arXiv 2511.10395, section 5.2); any other comes by class path
or entry point.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall

Message = dict[str, Any]


class Past(msgspec.Struct):
    """A turn that is over. Turns are whole: a tool's answer never stands without the call."""

    number: int
    """From 1."""
    said: Message
    """What the model wrote, as it would be echoed."""
    seen: tuple[Message, ...]
    """What came back: one or more `tool` messages, or the user's next turn."""


class History(msgspec.Struct):
    """One episode so far. A template writes `memory`, all else is given."""

    opening: list[Message]
    past: list[Past] = []
    whole: list[Message] = []
    """Opening and `past`, message by message."""
    used: int = 0
    """Tokens of the newest prompt."""
    memory: dict[str, Any] = {}
    """Of the template, for this episode alone: templates are shared by all episodes and keep no state of their own."""

    def __post_init__(self) -> None:
        self.whole = [*self.opening, *(message for past in self.past for message in (past.said, *past.seen))]

    def next_number(self) -> int:
        """Number of the turn that is being played."""
        return len(self.past) + 1

    def add(self, past: Past) -> None:
        """The turn is over."""
        self.past.append(past)
        self.whole += [past.said, *past.seen]


class ContextTemplate:
    """Everything, as it was: the base of all templates and, as `causal`, the default.

    A template of your own is a subclass; `messages` is the one method that most have to say anything about.

    Args:
        budget: most tokens of a prompt, as the engine renders it; 0 for no other limit than the engine's context. The
            answer comes on top: leave room for `max_tokens` of it below the engine's limit.

    Raises:
        ValueError: an option that makes no sense.
    """

    def __init__(self, *, budget: int = 0) -> None:
        if budget < 0:
            raise ValueError(f"budget is {budget}; give tokens, or 0 for the engine's own limit")
        self.budget = budget

    @property
    def instructions(self) -> str:
        """Appended to the system text of the opening, on lines of its own; empty for nothing."""
        return ""

    def tools(self, tools: Sequence[Message]) -> list[Message]:
        """The tools of the next request: those of the environment, and the template's own."""
        return list(tools)

    def messages(self, history: History) -> list[Message]:
        """The messages of the next request."""
        return assemble(history)

    def shrink(self, history: History) -> bool:
        """Make `messages` shorter by one notch, because they would exceed the budget.

        Returns:
            Whether anything was done; if not, the episode ends here, at its limit.
        """
        del history
        return False

    def take(self, history: History, calls: Sequence[ToolCall]) -> dict[int, str]:
        """Make those of a turn's calls that are the template's own; the environment never sees them.

        Returns:
            What each is answered with, by its place in `calls`; a mistake of the model is answered here too.
        """
        del history, calls
        return {}

    def record(self, history: History, past: Past) -> Past:
        """What is kept of a turn, before it joins the history."""
        del history
        return past


def assemble(history: History, hidden: Collection[int] = ()) -> list[Message]:
    """The opening and all turns but those with the numbers `hidden`.

    What the user said in a hidden turn stays: it is what the agent is there for. Where hiding makes two messages of the
    user meet they become one, since many chat templates insist on roles that alternate.
    """
    if not hidden:
        return list(history.whole)
    messages = list(history.opening)
    for past in history.past:
        if past.number not in hidden:
            messages += [past.said, *past.seen]
            continue
        for message in past.seen:
            if message.get("role") == "user":
                append_user(messages, message["content"])
    return messages


def append_user(messages: list[Message], content: Any) -> None:
    """Let the user say `content`: as part of the last message if that is the user's too."""
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str) and isinstance(content, str):
        messages[-1] = {**last, "content": f"{last['content']}\n\n{content}"}
    else:
        messages.append({"role": "user", "content": content})


def with_system(messages: Sequence[Message], default: str, text: str) -> list[Message]:
    """`messages` with `text` appended to the system text; to `default` where they have none."""
    if messages and messages[0].get("role") == "system":
        default, messages = messages[0]["content"], messages[1:]
    text = text.strip("\n")
    return [{"role": "system", "content": f"{default}\n{text}" if default else text}, *messages]


CAUSAL = ContextTemplate()
"""Everything, up to the engine's own limit."""

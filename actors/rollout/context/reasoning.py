"""Reasoning-augmented context: the model reasons before it acts, and what it reasoned is not carried along.

The trained tokens of a turn hold its reasoning, the prompts after it do not; so a new row begins with each turn that
reasoned before.
"""

import re
from typing import Any

from actors.rollout.context import ContextTemplate, History, Message

INSTRUCTIONS = "Before you act, reason step by step between {open} and {close}. Only what comes after {close} is kept."


class Reasoning(ContextTemplate):
    """Causal, with reasoning that is asked for and forgotten.

    Args:
        budget: as for every template; it ends the episode, as nothing is dropped but reasoning.
        open_tag: begins the reasoning.
        close_tag: ends it; reasoning that was cut off before it is forgotten too.
        keep_last: turns, counted from the newest, whose reasoning is still shown.
        instructions: what to ask for, with {open} and {close}; empty for models that reason unasked.

    Raises:
        ValueError: an empty tag, a negative number.
    """

    def __init__(
        self,
        *,
        budget: int = 0,
        open_tag: str = "<think>",
        close_tag: str = "</think>",
        keep_last: int = 0,
        instructions: str = INSTRUCTIONS,
    ) -> None:
        super().__init__(budget=budget)
        if not open_tag or not close_tag:
            raise ValueError("open_tag and close_tag tell where reasoning stands and must not be empty")
        if keep_last < 0:
            raise ValueError(f"keep_last is {keep_last}; give turns, 0 or more")
        self._keep_last = keep_last
        self._instructions = instructions.replace("{open}", open_tag).replace("{close}", close_tag)
        self._block = re.compile(rf"{re.escape(open_tag)}.*?(?:{re.escape(close_tag)}\s*|\Z)", re.DOTALL)

    @property
    def instructions(self) -> str:
        return self._instructions

    def messages(self, history: History) -> list[Message]:
        messages = list(history.opening)
        for past in history.past:
            kept = past.number > len(history.past) - self._keep_last
            messages += [past.said if kept else self._without(past.said), *past.seen]
        return messages

    def _without(self, said: Message) -> Message:
        content: Any = said.get("content")
        if not isinstance(content, str):
            return said
        left = self._block.sub("", content)
        # No words beside calls are null, as an engine's parser has it; no words at all must still be a text.
        return {**said, "content": left or (None if said.get("tool_calls") else "")}

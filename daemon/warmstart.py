"""`evolved warmstart`: makes the demo's warm-start checkpoint from a seed, and measures what it can do.

    python -m daemon.warmstart --out DIR --seed N
    python -m daemon.warmstart --out DIR --seeds 0 1 2 --work DIR    the best of several, for the demo's drift

Brings together what must not know each other: the travel desk's demonstrations (adapters) and the training (learner).
"""

import argparse
import json
import platform
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adapters.environments.travel import Drift, words
from adapters.environments.travel.demonstrations import Demonstrator, hints
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Variant
from adapters.environments.travel.environment import step
from learner.warmstart import chat

BASE_PARTS = tuple(
    "find search list check book cancel quote weather next finish _person _flight _orders _policy _ticket".split()
)
"""The parts of the tool names without drift."""
DRIFTS: dict[str, tuple[Drift, str]] = {
    "book -> buy": (Drift(rename={"book": "buy"}), "AC"),
    "book -> order_seat": (Drift(rename={"book": "order_seat"}), "A"),
    "hold before book": (Drift(precondition={"book": "hold"}), "A"),
    "cancel -> drop": (Drift(rename={"cancel": "drop"}), "BC"),
    "cancel -> void": (Drift(rename={"cancel": "void"}), "B"),
    "cancel -> void_ticket": (Drift(rename={"cancel": "void_ticket"}), "B"),
    "confirm before cancel": (Drift(precondition={"cancel": "confirm"}), "B"),
}
"""Drifts with held-out names that the recipe reports on, with the families that they concern."""


class Attempt:
    """One attempt at a task, in the text form that the sampler plays."""

    def __init__(self, seed: int, family: str, variant: Variant, hinted: bool) -> None:
        self._desk = Desk(f"measure-{seed}", family, variant)
        kinds = "".join(ticket.kind for ticket in self._desk.tickets)
        lines = hints(kinds, variant) if hinted else ()
        self.opening = chat.opening(self._desk.goal, variant.tools(), "".join("\n" + line for line in lines))
        self.solved = False

    def act(self, text: str) -> str | None:
        """Take the model's turn."""
        call = chat.parse(text)
        seen = step(self._desk, [] if call is None else [call])
        self.solved = self._desk.solved
        return None if seen.done else chat.continuation(seen.text)


def segments(demonstrator: Demonstrator) -> Iterator[list[tuple[str, bool]]]:
    """Endless demonstrations as weighted text."""
    while True:
        shown = demonstrator.demonstrate()
        conversation = [(chat.opening(shown.goal, shown.tools, shown.hint), False)]
        for number, (call, observation) in enumerate(shown.turns):
            conversation.append((chat.action(call) + chat.END, True))
            if number + 1 < len(shown.turns):
                conversation.append((chat.continuation(observation), False))
        yield conversation

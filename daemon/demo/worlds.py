"""The worlds that the demo can play in: whose customers, which tools, and the model that starts there."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actors.ports.environments import Environment
from adapters.environments import service_desk, travel
from adapters.environments.service_desk.grammar import MAILS, made_name

HERE = Path(__file__).parent


class DemoWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    environment: Callable[[Path | None], Environment]
    """The desk, given its drift file."""
    families: str
    """Kinds of task that agents and sandbox play, and that are measured."""
    warm_start: Path
    """The model before it has learnt anything."""
    max_steps: int
    """Turns of an agent."""
    max_tokens: int
    """Of a turn."""
    settings: dict[str, Any]
    """Where the demo's settings differ from its profile, which is the travel desk's."""
    drift: Callable[[Path, int], str]
    """Change the desk that reads this file, by a seed; returns what was renamed, in words."""


def _rename_book(path: Path, seed: int) -> str:
    travel.Drift(rename={"book": "buy"}).write(path)
    return "book to buy"


def _rename_to_made_names(path: Path, seed: int) -> str:
    """One tool of each agent gets a name that is made now; no model can have seen it."""
    rng = random.Random(f"drift-{seed}")
    rename = {role: made_name(rng, 4) for role in ("create_refund", "orders.cancel", "findUser")}
    service_desk.Drift(rename=rename).write(path)
    return ", ".join(f"{role} to {name}" for role, name in rename.items())


_MADE_ADDRESSES = rf"[a-z]+@(?:{'|'.join(map(re.escape, MAILS))})"
"""They are nobody's. Redacted, they would hold every run of the accounts agent back from training."""
_PLAYED = {"families": "ROA", "max_steps": 12, "max_tokens": 96}

WORLDS = {
    "travel": DemoWorld(
        environment=travel.TravelDesk,
        families="ABC",
        warm_start=HERE / "warmstart",
        max_steps=10,
        max_tokens=48,
        settings={},
        drift=_rename_book,
    ),
    "service": DemoWorld(
        environment=service_desk.ServiceDesk,
        families="ROA",
        warm_start=HERE / "service",
        max_steps=12,
        max_tokens=96,
        settings={
            "sandbox": {"environment": "service_desk"},
            "rollout": {**_PLAYED, "system": ""},
            "gate": {"sandbox": _PLAYED, "prompts": {"max_tokens": 96}},
            "probe": _PLAYED,
            "redaction": {"allow_patterns": [_MADE_ADDRESSES]},
        },
        drift=_rename_to_made_names,
    ),
}

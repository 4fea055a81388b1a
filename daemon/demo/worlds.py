"""The worlds that the demo can play in: whose customers, which tools, and the model that starts there."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actors.ports.environments import Environment, Episode
from adapters.environments import service_desk, travel
from adapters.environments.made_names import made_name
from adapters.environments.service_desk.follow_ups import follow_up
from adapters.environments.service_desk.grammar import MAILS

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
    afterwards: Callable[[random.Random, Episode], str] | None = None
    """What a customer says who has looked at what was done, empty for nothing; None: nobody here ever comes back."""


def _to_made_names(drift: Callable[..., travel.Drift | service_desk.Drift], *roles: str) -> Callable[[Path, int], str]:
    """Tools get names that are made now; no model can have seen them."""

    def change(path: Path, seed: int) -> str:
        rng = random.Random(f"drift-{seed}")
        rename = {role: made_name(rng, 4) for role in roles}
        drift(rename=rename).write(path)
        return ", ".join(f"{role} to {name}" for role, name in rename.items())

    return change


def _looked(rng: random.Random, episode: Episode) -> str:
    assert isinstance(episode, service_desk.ServiceEpisode)
    return follow_up(rng, "train", episode.desk)[1]


_MADE_ADDRESSES = rf"[a-z]+@(?:{'|'.join(map(re.escape, MAILS))})"
"""They are nobody's. Redacted, each would be masked in what the accounts agent learns from, and its name is what it
calls with; the published figures were measured without that."""

WORLDS = {
    "travel": DemoWorld(
        environment=travel.TravelDesk,
        families="ABC",
        warm_start=HERE / "warmstart",
        max_steps=10,
        max_tokens=48,
        settings={"sandbox": {"environment": "travel", "families": "ABC", "max_steps": 10, "max_tokens": 48}},
        drift=_to_made_names(travel.Drift, "book"),
    ),
    "service": DemoWorld(
        environment=service_desk.ServiceDesk,
        families="ROA",
        warm_start=HERE / "service",
        max_steps=12,
        max_tokens=96,
        settings={
            "sandbox": {"environment": "service_desk", "families": "ROA", "max_steps": 12, "max_tokens": 96},
            "redact": {"allow": [f"/{_MADE_ADDRESSES}/"]},
        },
        drift=_to_made_names(service_desk.Drift, "create_refund", "orders.cancel", "findUser"),
        afterwards=_looked,
    ),
}

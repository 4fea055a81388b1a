"""How episodes are played, from `[sandbox]`: a context template by name or class path, and a user's own agent loop."""

import difflib
from functools import partial
from typing import Any

import msgspec

from actors.rollout.context import ContextTemplate
from actors.rollout.context.named import SHIPPED, by_path
from actors.rollout.harness.agents import Agent
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.rollout.settings import RolloutSettings
from daemon.composition import registry
from daemon.errors import ConfigError


def harness(settings: RolloutSettings) -> HarnessConfig:
    """The manner that rollout and gate share."""
    chosen = (settings.context, settings.context_budget, settings.context_options, settings.agent)
    if chosen == ("causal", 0, {}, ""):
        return PLAIN
    agent = _agent(settings)
    if agent is not None and (settings.context != "causal" or settings.context_options):
        raise ConfigError(
            "sandbox.harness and sandbox.harness exclude each other: a loop of your own writes its messages itself; "
            "leave its name out"
        )
    label = msgspec.json.encode([*chosen, settings.agent_options], order="sorted").decode()
    return HarnessConfig(_context(settings), agent, label)


def _context(settings: RolloutSettings) -> ContextTemplate:
    name, options = settings.context, {**settings.context_options, "budget": settings.context_budget}
    if name not in SHIPPED and ":" not in name:
        near = difflib.get_close_matches(name, SHIPPED, 1, 0.5)
        if near:
            raise ConfigError(f"sandbox.harness: there is no {name!r}; did you mean {near[0]}?")
        return _checked(name, registry.build("context", name, options))
    try:
        kind: Any = SHIPPED.get(name) or by_path(name)
        return _checked(name, kind(**options))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"sandbox.harness {name!r}: {error}; check sandbox.harness_options") from error


def _checked(name: str, made: Any) -> ContextTemplate:
    if not isinstance(made, ContextTemplate):
        raise ConfigError(
            f"sandbox.harness {name!r} is a {type(made).__name__}; subclass actors.rollout.context.ContextTemplate"
        )
    return made


def _agent(settings: RolloutSettings) -> Agent | None:
    if not settings.agent:
        return None
    try:
        make = partial(by_path(settings.agent), **settings.agent_options)
        loop = make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"sandbox.harness {settings.agent!r}: {error}; check sandbox.harness_options") from error
    if not callable(getattr(loop, "run", None)):
        raise ConfigError(f"sandbox.harness {settings.agent!r} has no `async def run(self, session)`")
    return Agent(make, settings.agent_seconds)

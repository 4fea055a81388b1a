"""How episodes are played, as sandbox.harness says: by a context template, or by a user's own agent loop."""

import difflib
from functools import partial
from typing import Any

import msgspec

from actors.rollout.context import ContextTemplate
from actors.rollout.context.named import SHIPPED, by_path
from actors.rollout.harness.agents import Agent
from actors.rollout.harness.config import PLAIN, HarnessConfig
from daemon.composition import registry
from daemon.errors import ConfigError
from daemon.settings.tables import Sandbox


def harness(sandbox: Sandbox, turn_seconds: float) -> HarnessConfig:
    """The manner that rollout and gate share: what of an episode's history stands in a prompt (causal: all of it,
    reasoning, sliding, self-managing, an entry point `context.NAME`, or the class path of a template of one's own), or
    a loop of one's own with `async def run(self, session)`, which has the time of ten turns.

    Raises:
        ConfigError: there is no such harness, or it cannot be made.
    """
    name, options = sandbox.harness, sandbox.harness_options
    if name == "causal" and not options:
        return PLAIN
    label = msgspec.json.encode([name, options], order="sorted").decode()
    if name not in SHIPPED and ":" not in name:
        near = difflib.get_close_matches(name, SHIPPED, 1, 0.5)
        if near:
            raise ConfigError(f"sandbox.harness: there is no {name!r}; did you mean {near[0]}?")
        return HarnessConfig(registry.build("context", name, options), None, label)
    with registry.making(f"sandbox.harness {name!r}, sandbox.harness_options"):
        kind: Any = SHIPPED.get(name) or by_path(name)
        if issubclass(kind, ContextTemplate):
            registry.check_options(kind, options, f"sandbox.harness_options of {name!r}")
            return HarnessConfig(kind(**options), None, label)
        own = {key: value for key, value in options.items() if key != "budget"}
        loop, template = partial(kind, **own), ContextTemplate(budget=options.get("budget", 0))
        if callable(getattr(loop(), "run", None)):
            return HarnessConfig(template, Agent(loop, 10 * turn_seconds), label)
    raise ConfigError(
        f"sandbox.harness {name!r} is neither a ContextTemplate nor a loop with `async def run(self, session)`"
    )

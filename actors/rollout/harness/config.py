"""In what manner episodes are played: a context template and a loop, the same for rollout and gate.

A candidate that was trained in one context and examined in another would be judged by what it was never taught.
"""

import msgspec

from actors.rollout.context import CAUSAL, ContextTemplate
from actors.rollout.harness.agents import Agent


class HarnessConfig(msgspec.Struct, frozen=True):
    """Context template and loop."""

    context: ContextTemplate = CAUSAL
    agent: Agent | None = None
    """None for our own loop."""
    label: str = ""
    """Tells manners apart whose results must not be compared; empty for the default one."""


PLAIN = HarnessConfig()
"""Our own loop with all of the history."""

"""Monitoring in the daemon: whether production got worse (the sentinel), and whether there is learning at all."""

from typing import NamedTuple

from actors.curation.curator import Curator
from actors.gate.gatekeeper import Gatekeeper
from actors.kinds.kinds import Kinds
from actors.monitoring.sentinel import Sentinel
from daemon.collectors.learning import LearningView, learning_figures
from daemon.collectors.monitoring import sentinel_figures
from daemon.composition.deployment import Deployment
from daemon.composition.wiring import Wiring


class Monitoring(NamedTuple):
    """Who says how it goes."""

    sentinel: Sentinel
    learning: LearningView


def monitoring(
    wiring: Wiring, curator: Curator, gatekeeper: Gatekeeper, deployed: Deployment, kinds: Kinds
) -> Monitoring:
    """Looks at everything before it."""
    config, parts = wiring.config, wiring.parts
    learning = LearningView(
        curator=curator, gatekeeper=gatekeeper, fleet=lambda: deployed.swapper.fleet, canary=config.swapper.canary,
        halted=deployed.kill.reason, leads=lambda: wiring.leadership.leading, clock=wiring.clock,
    )  # fmt: skip
    wiring.figures(learning_figures, learning)
    sentinel = Sentinel(config.sentinel, store=parts.store, engines=parts.engines, clock=wiring.clock, kinds=kinds)
    wiring.figures(sentinel_figures, sentinel)
    wiring.act(sentinel)
    return Monitoring(sentinel, learning)

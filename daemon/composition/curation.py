"""Curation in the daemon: the curator, which orders batches."""

from actors.curation.curator import Curator
from actors.curation.curriculum import Curriculum
from actors.kinds.kinds import Kinds
from daemon.collectors.curation import curator_figures, outcome_figures
from daemon.collectors.outcomes import provisional_figures
from daemon.composition.wiring import Wiring
from daemon.settings.config import curator_settings


def curation(wiring: Wiring, curriculum: Curriculum, kinds: Kinds) -> Curator:
    """Labelled trajectories to orders for the learner."""
    config = wiring.config
    curator = Curator(
        curator_settings(config), store=wiring.parts.store, batches=config.state / "batches", clock=wiring.clock,
        curriculum=curriculum, kinds=kinds,
    )  # fmt: skip
    wiring.figures(curator_figures, curator)
    wiring.figures(provisional_figures, curator)
    wiring.figures(outcome_figures, wiring.parts.store)
    wiring.act(curator, renews=True)
    return curator

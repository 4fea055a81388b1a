"""The questioner in the daemon: its parts put together, and its metrics."""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from actors.ports.environments import Environment
from actors.ports.models import Embedder, TaskPhrasing
from actors.store import Store
from actors.tasks.questioner.actor import Questioner
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.state import QuestionerState
from daemon.collectors.figures import counter, gauge, split
from daemon.composition import values
from daemon.settings.tables import Config


def questioner(
    config: Config,
    *,
    store: Store,
    sink: Store,
    environment: Environment,
    embedder: Embedder | None,
    wording: TaskPhrasing | None,
    clock: Callable[[], float] = time.monotonic,
) -> Questioner:
    """The producer of self-made tasks."""
    settings = values.questioner(config)

    def make(state: QuestionerState | None) -> Generator:
        return Generator(
            settings, environment, clock=clock, seed=config.seed, embedder=embedder, wording=wording, state=state
        )

    return Questioner(store=store, sink=sink, make=make)


def questioner_figures(questioner: Questioner) -> Iterator[Metric]:
    state = questioner.state
    dropped, did = split(state.counts, "dropped.")
    events = {**did, "offered": questioner.offered}
    yield counter("evolved_questioner_events", "What the questioner did.", events, "what")
    yield counter("evolved_questioner_dropped", "Proposed tasks that were not kept, by reason.", dropped, "reason")
    yield gauge("evolved_questioner_worlds", "Worlds looked at.", state.round)
    yield gauge("evolved_questioner_programs", "Programs that are known.", len(state.library))

"""The questioner in the daemon: its parts put together, and its metrics."""

import random
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.ports.embedders import Embedder
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.task_phrasing import TaskPhrasing
from actors.tasks.questioner.actor import Questioner, QuestionerStore
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.ports import TaskSink
from actors.tasks.questioner.solving import EngineSolver
from actors.tasks.questioner.state import QuestionerState
from adapters.environments.synthetic_tasks import SyntheticTasks
from daemon.composition.wiring import Wiring
from daemon.settings.config import Config


def questions(wiring: Wiring, environment: Environment | None, embedder: Embedder) -> None:
    """The questioner, where there is a sandbox and it is switched on.

    Args:
        environment: the sandbox with all its tools, whatever the tool search shows to others: it explores.

    Raises:
        ConfigError: there is no adapter of that name for the wording, or it does not take its options.
    """
    config, parts = wiring.config, wiring.parts
    if environment is None or not config.questioner.enabled:
        return
    asking = questioner(
        config, store=parts.store, sink=parts.store, environment=environment, shadow=parts.shadow, embedder=embedder,
        wording=parts.adapter("wording", config.wording), rng=wiring.rng("questioner"),
    )  # fmt: skip
    QuestionerCollector(asking).register(wiring.singletons)
    wiring.produce(asking)


def questioner(
    config: Config,
    *,
    store: QuestionerStore,
    sink: TaskSink,
    environment: Environment,
    shadow: Engine,
    embedder: Embedder | None,
    wording: TaskPhrasing | None,
    rng: random.Random,
    clock: Callable[[], float] = time.monotonic,
) -> Questioner:
    """The producer of self-made tasks.

    Args:
        environment: the sandbox as it is.
        shadow: engine that tries tasks, where `questioner.attempts` asks for that.
        rng: of these attempts.
        clock: seconds that only go forward, for budgets.
    """
    settings = config.questioner
    solver = EngineSolver(shadow, SyntheticTasks(environment), rng=rng) if settings.attempts else None

    def make(state: QuestionerState | None) -> Generator:
        return Generator(
            settings, environment, clock=clock, seed=config.seed, embedder=embedder, wording=wording, solver=solver,
            state=state,
        )  # fmt: skip

    return Questioner(settings, store=store, sink=sink, make=make)


class QuestionerCollector(Collector):
    """Reads the questioner's figures at each scrape."""

    def __init__(self, questioner: Questioner) -> None:
        self._questioner = questioner

    def register(self, registry: CollectorRegistry) -> None:
        """Show the figures in `registry`."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        state = self._questioner.state
        events = CounterMetricFamily("evolved_questioner_events", "What the questioner did.", labels=("what",))
        dropped = CounterMetricFamily(
            "evolved_questioner_dropped", "Proposed tasks that were not kept, by reason.", labels=("reason",)
        )
        for name, count in sorted(state.counts.items()):
            what, _, reason = name.partition(".")
            if what == "dropped":
                dropped.add_metric((reason,), count)
            else:
                events.add_metric((name,), count)
        events.add_metric(("offered",), self._questioner.offered)
        yield events
        yield dropped
        yield GaugeMetricFamily("evolved_questioner_worlds", "Worlds looked at.", state.round)
        yield GaugeMetricFamily("evolved_questioner_programs", "Programs that are known.", len(state.library))

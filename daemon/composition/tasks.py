"""Tasks that are made here, put together: mixture for the rollout, tasks from live failures, their figures."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import cluster_of
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.graders import Grader
from actors.rollout.rollout import Rollout
from actors.store import Store
from actors.store.errors import StoreUnavailable
from actors.tasks.failures import FailureSettings, LiveFailures
from actors.tasks.mixture import Mixture, MixtureSettings, estimate_of
from actors.tasks.searching import SearchSettings, ShadowSearch
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.graders.verdicts import Verdicts


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of the sandbox beside the environment's own."""

    mixture: MixtureSettings = MixtureSettings()
    """How many of them are played, and how much they count."""
    failures: FailureSettings = FailureSettings()
    """What becomes of production's failures."""
    search: SearchSettings = SearchSettings()
    """How a way is searched for where nobody succeeded; only with a `grader`."""


class Tasks:
    """The parts that make and mix tasks, for one sandbox.

    Attributes:
        environment: the sandbox, with self-made tasks: what the rollout plays in.
        mixture: for the rollout.
        failures: an actor.
    """

    def __init__(
        self,
        settings: TaskSettings,
        *,
        store: Store,
        environment: Environment,
        families: str,
        curriculum: Curriculum,
        clock: Callable[[], float],
        engine: Engine,
        rng: Random,
        grader: Grader | None = None,
    ) -> None:
        """
        Args:
            engine: the shadow engine.
            environment: the sandbox as it is; gate, probes and skill trials keep to that.
            families: that the rollout plays of its own.
        """
        self._store, self._curriculum = store, curriculum
        self.environment = SyntheticTasks(environment, Verdicts(grader) if grader is not None else None)
        self.mixture = Mixture(settings.mixture, book=store, weigher=curriculum, clock=clock)
        searcher = None
        if grader is not None:
            searcher = ShadowSearch(
                settings.search, engine=engine, environment=self.environment, grader=grader, rng=rng, clock=clock
            )
        self.failures = LiveFailures(
            settings.failures, store=store, environment=environment, mix=families or None, urge=curriculum,
            searcher=searcher,
        )  # fmt: skip

    def register(self, registry: CollectorRegistry, rollout: Rollout) -> None:
        """Show the figures in `registry`."""
        registry.register(TaskCollector(self, rollout, self._store))

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/tasks", self._tasks), Route("/api/curriculum", self._standings)]

    async def _tasks(self, request: Request) -> JSONResponse:
        """The pool: each task with how it fared; `?state=` for those in one state."""
        wanted = request.query_params.get("state", "")
        try:
            states = await self._store.task_states((wanted,) if wanted else ())
        except StoreUnavailable as error:
            return JSONResponse({"error": {"message": f"the store is away: {error}"}}, status_code=503)
        rows: list[dict[str, Any]] = [
            {
                "id": one.task.id, "goal": one.task.goal, "origin": one.task.origin,
                "cluster": cluster_of(one.task.goal), "state": one.state, "reason": one.reason, "tried": one.tried,
                "solved": one.solved, "difficulty": estimate_of(one).difficulty, "last": one.last, "again": one.again,
            }
            for one in states
        ]  # fmt: skip
        return JSONResponse({"tasks": rows, "counts": self.figures()})

    async def _standings(self, request: Request) -> JSONResponse:
        """The clusters, those that are worth most first."""
        return JSONResponse({"clusters": msgspec.to_builtins(self._curriculum.standings())})

    def figures(self) -> dict[str, int]:
        """What was counted, by who did."""
        return {
            **{f"mixture_{name}": number for name, number in self.mixture.counts.items()},
            **{f"failures_{name}": number for name, number in self.failures.counts.items()},
            **{f"offered_{name}": number for name, number in self._store.task_offers.items()},
        }


class TaskCollector(Collector):
    """Reads the figures at each scrape."""

    def __init__(self, tasks: Tasks, rollout: Rollout, store: Store) -> None:
        self._tasks, self._rollout, self._store = tasks, rollout, store

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "evolved_task_events", "What became of tasks that were made here, and of failures.", labels=("what",)
        )
        for name, number in sorted(self._tasks.figures().items()):
            events.add_metric((name,), number)
        yield events
        lost = CounterMetricFamily(
            "evolved_rollout_lost", "Sandbox episodes that came to nothing, by reason.", labels=("reason",)
        )
        for reason, number in sorted(self._rollout.lost.items()):
            lost.add_metric((reason,), number)
        yield lost
        cut = CounterMetricFamily(
            "evolved_rollout_cut", "Sandbox episodes that the environment did not end, by what did.", labels=("what",)
        )
        for what, number in sorted(self._rollout.cut.items()):
            cut.add_metric((what,), number)
        yield cut
        yield CounterMetricFamily("evolved_rollout_played", "Sandbox episodes that were emitted.", self._rollout.played)
        yield CounterMetricFamily("evolved_rollout_retried", "Attempts that were made again.", self._rollout.retried)
        yield GaugeMetricFamily(
            "evolved_rollout_unplanned", "Tasks that were played as they came.", self._rollout.unplanned
        )

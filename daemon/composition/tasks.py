"""Tasks that are made here, put together: mixture for the rollout, tasks from live failures, their figures."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
from prometheus_client.core import Metric
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from actors.curation.curriculum import Curriculum
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.models import Grader, needs_reference
from actors.rollout.rollout import Rollout
from actors.store import Store
from actors.store.errors import StoreUnavailable
from actors.tasks.failures import FailureSettings, LiveFailures
from actors.tasks.mixture import Mixture, estimate_of
from actors.tasks.searching import SearchSettings, ShadowSearch
from adapters.environments.synthetic_tasks import SyntheticTasks
from daemon.collectors.figures import counter, gauge


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of the sandbox beside the environment's own."""

    share: float = 0.25
    """Of a round's tasks, how many are self-made, while there are enough; 0 for none."""
    failures: FailureSettings = FailureSettings()
    """What becomes of production's failures."""
    search: SearchSettings = SearchSettings()
    """How a way is searched for where nobody succeeded; only with a `grader`."""


class Tasks:
    """The parts that make and mix tasks, for one sandbox."""

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
        self._store, self._curriculum = store, curriculum
        self.environment = SyntheticTasks(environment, grader)
        self.mixture = Mixture(settings.share, book=store, weigher=curriculum, clock=clock)
        searcher = None
        if grader is not None and not needs_reference(grader):  # nobody has gone that way: there is no reference
            searcher = ShadowSearch(
                settings.search, engine=engine, environment=self.environment, grader=grader, rng=rng, clock=clock
            )
        self.failures = LiveFailures(
            settings.failures, store=store, environment=environment, mix=families or None, kinds=curriculum,
            searcher=searcher,
        )  # fmt: skip

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/tasks", self._tasks)]

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
                "cluster": self._curriculum.kind(one.task.goal), "state": one.state, "reason": one.reason,
                "tried": one.tried, "solved": one.solved, "difficulty": estimate_of(one).difficulty,
                "last": one.last, "again": one.again,
            }
            for one in states
        ]  # fmt: skip
        return JSONResponse({"tasks": rows, "counts": self.figures()})

    def figures(self) -> dict[str, int]:
        """What was counted, by who did."""
        return {
            **{f"mixture_{name}": number for name, number in self.mixture.counts.items()},
            **{f"failures_{name}": number for name, number in self.failures.counts.items()},
            **{f"offered_{name}": number for name, number in self._store.task_offers.items()},
        }


def task_figures(tasks: Tasks) -> Iterator[Metric]:
    yield counter(
        "evolved_task_events", "What became of tasks that were made here, and of failures.", tasks.figures(), "what"
    )


def rollout_figures(rollout: Rollout) -> Iterator[Metric]:
    yield counter("evolved_rollout_lost", "Sandbox episodes that came to nothing, by reason.", rollout.lost, "reason")
    yield counter(
        "evolved_rollout_cut", "Sandbox episodes that the environment did not end, by what did.", rollout.cut, "what"
    )
    yield counter("evolved_rollout_played", "Sandbox episodes that were emitted.", rollout.played)
    yield counter("evolved_rollout_retried", "Attempts that were made again.", rollout.retried)
    yield counter(
        "evolved_rollout_tasks", "Task numbers of the environment, by what became of them.", rollout.tasks, "what"
    )
    yield gauge("evolved_rollout_waiting", "Task numbers that wait for their kind to be planned.", rollout.waiting)

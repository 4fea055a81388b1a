"""Tasks that are made here, and the kinds that are played.

GET /api/tasks        the pool: each task with how it fared; `?state=` for those in one state
GET /api/curriculum   the clusters, those that are worth most first
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from actors.curation.curriculum import Curriculum
from actors.store import Store
from actors.store.errors import StoreUnavailable
from actors.tasks.mixture import estimate_of
from daemon.collectors.parts import task_counts


class TaskApi:
    """Answers for the parts that make and mix tasks."""

    def __init__(self, store: Store, curriculum: Curriculum, counts: Mapping[str, Mapping[str, int]]) -> None:
        """`counts`: what was counted, by who did."""
        self._store, self._curriculum, self._counts = store, curriculum, counts

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/tasks", self._tasks), Route("/api/curriculum", self._standings)]

    async def _tasks(self, request: Request) -> JSONResponse:
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
        return JSONResponse({"tasks": rows, "counts": task_counts(self._counts)})

    async def _standings(self, request: Request) -> JSONResponse:
        return JSONResponse({"clusters": msgspec.to_builtins(self._curriculum.standings())})

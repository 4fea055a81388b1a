"""Which lessons the guided part of a group sees, and what its prompt is without them."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from actors.messages import Experience, Task
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError
from actors.ports.parsed_calls import offered
from actors.ports.store import Retriever
from actors.rollout.context import ContextTemplate
from actors.rollout.episode_runner import begin, opening_ids
from actors.rollout.errors import EpisodeLost
from actors.system.errors import DependencyUnavailable


class Guidance:
    """Looks lessons up for a task."""

    def __init__(
        self,
        retriever: Retriever,
        *,
        engine: Engine,
        environment: Environment,
        tenant: str,
        most: int,
        timeout: float,
        failed: Callable[[Exception], None],
        context: ContextTemplate,
    ) -> None:
        """
        Args:
            most: lessons in a prompt.
            timeout: seconds for one answer of engine or environment.
            failed: told when the retriever breaks down; the group goes on without.
            context: what of a history stands in a prompt.
        """
        self._retriever, self._engine, self._environment = retriever, engine, environment
        self._tenant, self._most, self._timeout, self._failed = tenant, most, timeout, failed
        self._context = context

    async def of(self, task: Task) -> tuple[tuple[Experience, ...], Sequence[int]]:
        """Lessons for `task`, and the ids of its opening without them.

        Neither if the task cannot be begun or rendered here: its attempts begin it again and count their own losses.
        """
        try:
            return await self._look(task)
        except EpisodeLost as error:
            self._failed(error)
            return (), ()

    async def _look(self, task: Task) -> tuple[tuple[Experience, ...], Sequence[int]]:
        async with aclosing(await begin(self._environment, task, self._timeout)) as episode:
            lessons = await self._lessons(task, episode.tools)
            if not lessons:
                return (), ()
            system = self._environment.profile().system
            return lessons, await opening_ids(
                self._engine, episode, timeout=self._timeout, context=self._context, system=system
            )

    async def _lessons(self, task: Task, tools: list[dict[str, Any]]) -> tuple[Experience, ...]:
        try:
            names = offered(tools)
            found = await self._retriever.lessons(task.goal, self._tenant, tools=names)
            # Whoever finds lessons may be behind: what is quarantined by now is shown to nobody.
            return tuple(one for one in found if one.state != "quarantined")[: self._most]
        except (DependencyUnavailable, AdapterError) as error:
            # A group without guidance is worth more than none.
            self._failed(error)
            return ()

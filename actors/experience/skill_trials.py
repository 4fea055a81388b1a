"""Trying a skill in the sandbox: its calls on fresh training tasks of the same kind, without any policy."""

from contextlib import aclosing
from typing import Any

import anyio
import structlog

from actors.experience.lesson_ab_test import about
from actors.experience.skills import bind, kind_of, read_skill
from actors.messages import Experience, Task
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError
from actors.tool_results.tool_calls import read_json

_log = structlog.get_logger(__name__)
_SUCCESS = 0.5


_TASKS = 8
"""Fresh tasks that a skill is tried on."""
_WANTED = 0.75
"""Share of them that it must solve."""
_LOOKAHEAD = 128
"""Task numbers looked at to find tasks of its kind."""
_FIRST_SEED = 70_000_000
"""Lowest number of the tasks; far from those of rollouts and probes."""
_STEP_SECONDS = 30.0
"""For one answer of the environment."""


class SkillReplayer:
    """Tries skills on an environment's training tasks, never on held-out ones.

    Args:
        families: kinds of task; empty for the environment's usual mix.
    """

    def __init__(self, environment: Environment, families: str = "") -> None:
        self._environment, self._families = environment, families

    async def test(self, lesson: Experience) -> bool | None:
        """Whether the skill works; None if the sandbox has no tasks of its kind.

        Raises:
            AdapterError: the sandbox broke down.
        """
        tried = solved = 0
        for seed in range(_FIRST_SEED, _FIRST_SEED + _LOOKAHEAD):
            if tried == _TASKS:
                break
            task = self._environment.sample(seed, "train", self._families or None)
            if kind_of(task.goal) == lesson.when_to_use or _like(lesson, task):
                tried += 1
                solved += await self._play(lesson, task)
        _log.info("skill_tried", lesson=lesson.id, tasks=tried, solved=solved)
        return solved >= _WANTED * tried if tried else None

    async def _play(self, lesson: Experience, task: Task) -> bool:
        calls, results = read_skill(lesson) or (), list[Any]()
        try:
            with anyio.fail_after(_STEP_SECONDS * (len(calls) + 2)):
                async with aclosing(await self._environment.reset(task)) as episode:
                    for number in range(len(calls)):
                        call = bind(calls, number, task.goal, results)
                        if call is None:
                            return False
                        seen = await episode.step([call], "")
                        results.append(read_json(seen.text))
                    return await episode.evaluate() >= _SUCCESS
        except TimeoutError as error:
            raise AdapterError("the sandbox took too long over a skill") from error


def _like(lesson: Experience, task: Task) -> bool:
    """Whether a skill that goals in free words have shown can be begun for `task`."""
    calls = read_skill(lesson) or ()
    if not calls or "*" in lesson.when_to_use or not about(lesson, task.goal):
        return False
    return bind(calls, 0, task.goal, []) is not None

"""`EngineSolver`: attempts a proposed task with the weights that an engine has."""

import random
from contextlib import aclosing

from actors.messages import Task
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.rollout.episode_runner import begin, play
from actors.rollout.errors import EpisodeLost
from actors.tasks.questioner.errors import SolverUnavailable


class EngineSolver:
    """Tries tasks.

    Args:
        timeout: seconds for one answer of engine or environment.
    """

    def __init__(
        self,
        engine: Engine,
        environment: Environment,
        *,
        rng: random.Random,
        max_steps: int = 24,
        max_tokens: int = 512,
        timeout: float = 60.0,
    ) -> None:
        self._engine, self._environment, self._rng = engine, environment, rng
        self._max_steps, self._max_tokens, self._timeout = max_steps, max_tokens, timeout

    async def attempt(self, task: Task, attempts: int) -> float:
        """The share of `attempts` that solved `task`.

        Raises:
            SolverUnavailable: an attempt broke down.
        """
        solved = 0
        try:
            for _ in range(attempts):
                async with aclosing(await begin(self._environment, task, self._timeout)) as episode:
                    played = await play(
                        self._engine,
                        episode,
                        max_steps=self._max_steps,
                        max_tokens=self._max_tokens,
                        seed=self._rng.getrandbits(31),
                        timeout=self._timeout,
                    )
                solved += played.outcome >= 1.0
        except EpisodeLost as error:
            raise SolverUnavailable(str(error)) from error
        return solved / attempts if attempts else 0.0

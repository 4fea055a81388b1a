"""The exam: held-out tasks of a sandbox, each attempted several times by the weights that an engine has.

Gate and `evolved eval` share it. Tasks are drawn by number, with the same seeds for every version, and bounded.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing

import anyio
import msgspec
import structlog

from actors.kinds.clusters import cluster_of, template_of
from actors.messages import Task, derived_id
from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.rollout.episode_runner import begin, play
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.system.errors import DependencyUnavailable

_log = structlog.get_logger(__name__)
_NAME_LENGTH = 60
_CONCURRENCY = 32
"""Episodes at once: what fills an engine's batch."""
_MAX_LOST = 0.1
"""Share of episodes that may break down before the measurement is given up: those left may be the easy ones."""
_STRIDE = 15_485_863
"""Between the seeds of two attempts at one task; a prime, so that tasks and attempts do not meet."""

Record = Callable[[int, bool], None]
"""Told of each attempt that was played: number of the task, and whether it was solved."""


class ExamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How held-out tasks are attempted."""

    first_seed: int = 1_000_000
    """Number of the first held-out task; far from 0, where people measure by hand: not on what the gate selects by."""
    families: str = ""
    """Kinds of task, one letter each; empty for the environment's usual mix."""
    attempts: int = 2
    """At each task: success is measured as avg@n with this n."""
    max_steps: int = 24
    max_tokens: int = 512
    """Per step."""
    temperature: float = 1.0
    step_timeout: float = 60.0
    """Seconds for one answer of the engine or the environment."""


class Exam:
    """Plays held-out tasks."""

    def __init__(
        self,
        settings: ExamSettings,
        *,
        environment: Environment,
        engine: Engine,
        seed: int = 0,
        harness: HarnessConfig = PLAIN,
    ) -> None:
        """
        Args:
            seed: of the sampling, the same for all versions.
            harness: in which attempts are played: the rollout's, so that nobody is examined in what was not taught.
        """
        self._settings, self._environment, self._engine, self._seed = settings, environment, engine, seed
        self._harness = harness

    def fingerprint(self) -> str:
        """What makes two measurements comparable: the environment as it is now, and how it is sampled."""
        profile = msgspec.json.encode(self._environment.profile(), order="sorted").decode()
        tools = msgspec.json.encode(self._environment.tools(), order="sorted").decode()
        settings = self._settings
        return derived_id(
            "exam", profile, tools, settings.families, settings.first_seed, settings.attempts, settings.max_steps,
            settings.max_tokens, settings.temperature, self._seed,
            *((self._harness.label,) if self._harness.label else ()),
        )  # fmt: skip

    def task(self, number: int) -> Task:
        """Held-out task `number`, from 0.

        Raises:
            ValueError: a family that the environment does not have.
        """
        settings = self._settings
        return self._environment.sample(settings.first_seed + number, "heldout", settings.families or None)

    def families(self, tasks: Iterable[int]) -> dict[str, tuple[str, list[int]]]:
        """The kinds of goals among `tasks`: by cluster, the goal with its names masked, and the tasks' numbers."""
        found: dict[str, tuple[str, list[int]]] = {}
        for number in tasks:
            goal = self.task(number).goal
            found.setdefault(cluster_of(goal), (template_of(goal)[:_NAME_LENGTH], []))[1].append(number)
        return found

    async def play(self, version: int, missing: Mapping[int, int], record: Record) -> set[int]:
        """Attempt tasks with the weights that are loaded; returns the tasks of which an attempt broke down.

        Args:
            version: what is loaded. Attempts that other weights took part in count as broken down: the engine was
                restarted under us. -1 takes whatever the engine has.
            missing: by number of the task, how many of its attempts are there already.

        Raises:
            DependencyUnavailable: more than a tenth of the attempts broke down.
        """
        settings = self._settings
        wanted = [(number, attempt) for number, have in missing.items() for attempt in range(have, settings.attempts)]
        lost: list[int] = []
        slots = anyio.CapacityLimiter(_CONCURRENCY)

        async def one(number: int, attempt: int) -> None:
            async with slots:
                outcome = await self._attempt(number, attempt, version)
            if outcome is None:
                lost.append(number)
            else:
                record(number, outcome)

        async with anyio.create_task_group() as group:
            for number, attempt in wanted:
                group.start_soon(one, number, attempt)
        if len(lost) > _MAX_LOST * len(wanted):
            raise DependencyUnavailable(f"{len(lost)} of {len(wanted)} held-out episodes broke down")
        return set(lost)

    async def _attempt(self, number: int, attempt: int, version: int) -> bool | None:
        settings = self._settings
        try:
            task = self.task(number)
            async with aclosing(await begin(self._environment, task, settings.step_timeout)) as episode:
                played = await play(
                    self._engine,
                    episode,
                    context=self._harness.context,
                    agent=self._harness.agent,
                    max_steps=settings.max_steps,
                    max_tokens=settings.max_tokens,
                    temperature=settings.temperature,
                    seed=self._seed * 1_000_003 + number + _STRIDE * attempt,
                    timeout=settings.step_timeout,
                )
        except (EpisodeLost, DependencyUnavailable) as error:
            _log.info("gate_episode_lost", task=number, reason=str(error))
            return None
        if version >= 0 and played.min_version >= 0 and not played.min_version == played.max_version == version:
            _log.warning("gate_other_weights", wanted=version, oldest=played.min_version, newest=played.max_version)
            return None
        return played.outcome >= 0.5

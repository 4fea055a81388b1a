"""`InstancePool`: fresh instances of an environment's worlds, within a budget of instances, calls and seconds.

Whatever an instance does (fails, hangs, answers megabytes), the laboratory answers with an execution or `WorldLost`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from actors.messages import Task
from actors.ports.environments import Environment, Episode, Stateful
from actors.ports.tool_answers.reader import failed
from actors.tasks.questioner.errors import BudgetSpent, NotProbeable, WorldLost
from actors.tasks.questioner.settings import ProbeSettings
from actors.tasks.reference_calls import ReferenceCall, state_of

T = TypeVar("T")
_ANSWER = 65_536
"""Characters of an answer that are looked at."""


class Made(msgspec.Struct, frozen=True):
    """A call that was really made, and what came of it."""

    call: ReferenceCall
    answer: str
    refused: bool
    done: bool
    changed: bool = False
    """The state was another afterwards; only known in a walk."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that were made in one fresh instance of a world."""

    made: tuple[Made, ...]
    before: dict[str, Any]
    after: dict[str, Any]
    outcome: float = 0.0
    """Of the world's own goal, if that was asked for."""

    @property
    def clean(self) -> bool:
        """No call was refused."""
        return not any(one.refused for one in self.made)

    @property
    def done(self) -> bool:
        """The episode was over."""
        return bool(self.made) and self.made[-1].done


class Session:
    """One open instance."""

    def __init__(self, instances: "InstancePool", episode: Episode) -> None:
        self._instances, self._episode = instances, episode
        self.tools = episode.tools
        self.made: list[Made] = []

    async def call(self, call: ReferenceCall, *, watch: bool = False) -> Made:
        """Make one call; `watch` whether it changes the state.

        Raises:
            WorldLost, BudgetSpent
        """
        before = await self.state() if watch else None
        seen = await self._instances.step(self._episode.step([call.call(len(self.made))], ""))
        self.tools = self._episode.tools
        text = seen.text[:_ANSWER]
        changed = watch and await self.state() != before
        self.made.append(Made(call, text, failed(text), seen.done, changed))
        return self.made[-1]

    async def state(self) -> dict[str, Any]:
        """The state now.

        Raises:
            WorldLost
        """
        return await self._instances.within(state_of(self._episode))

    async def outcome(self) -> float:
        """What the world's own verifier says, after the agent has said that it is done where no tool says so.

        Raises:
            WorldLost, BudgetSpent
        """
        if not (self.made and self.made[-1].done):
            await self._instances.step(self._episode.step([], "done"))
        return await self._instances.within(self._episode.evaluate())


class InstancePool:
    """Opens instances."""

    def __init__(self, environment: Environment, settings: ProbeSettings, clock: Callable[[], float]) -> None:
        self.environment, self._settings, self._clock = environment, settings, clock
        self._end = clock() + settings.seconds
        self.counts: Counter[str] = Counter()
        """instances, steps, lost"""
        self._lost_in_a_row = 0

    @property
    def left(self) -> bool:
        """Whether there is any budget left."""
        counts, settings = self.counts, self._settings
        within = counts["instances"] < settings.instances and counts["steps"] < settings.steps
        return within and self._clock() < self._end

    def renew(self) -> None:
        """A new run begins: the budget is whole again."""
        self._end = self._clock() + self._settings.seconds
        for name in ("instances", "steps"):
            self.counts[name] = 0

    @asynccontextmanager
    async def open(self, base: Task) -> AsyncIterator[Session]:
        """A fresh instance of the world of `base`.

        Raises:
            WorldLost, BudgetSpent
            NotProbeable: episodes show no state, or instances fail again and again.
        """
        if not self.left:
            raise BudgetSpent("the budget of instances, calls or seconds is spent")
        self.counts["instances"] += 1
        episode = await self.within(self.environment.reset(base))
        async with aclosing(episode):
            if not isinstance(episode, Stateful):
                raise NotProbeable(
                    f"{self.environment.name}: its episodes show no state (adapters.environments.Stateful); without it"
                    " no execution can verify a task"
                )
            yield Session(self, episode)
            self._lost_in_a_row = 0

    async def execute(self, base: Task, calls: Sequence[ReferenceCall], *, evaluate: bool = False) -> Execution:
        """Make `calls` in a fresh instance; stops at the first refusal, and when the episode is over.

        Raises:
            WorldLost, BudgetSpent, NotProbeable
        """
        async with self.open(base) as session:
            before = await session.state()
            for call in calls:
                made = await session.call(call)
                if made.refused or made.done:
                    break
            after = await session.state()
            outcome = await session.outcome() if evaluate else 0.0
        return Execution(made=tuple(session.made), before=before, after=after, outcome=outcome)

    async def step(self, call: Awaitable[T]) -> T:
        """One call of an instance, on the budget's account."""
        self.counts["steps"] += 1
        return await self.within(call)

    async def within(self, call: Awaitable[T]) -> T:
        """`await call` with a deadline and one error for all that an environment may raise."""
        try:
            with anyio.fail_after(self._settings.step_timeout):
                return await call
        # An environment is other people's code: whatever it raises is its failure, and the next instance's chance.
        except Exception as error:
            self.counts["lost"] += 1
            self._lost_in_a_row += 1
            text = f"{type(error).__name__}: {error}"
            if self._lost_in_a_row >= self._settings.failures:
                raise NotProbeable(f"{self._lost_in_a_row} instances in a row were lost; the last: {text}") from error
            raise WorldLost(text) from error

"""Held-out success of an engine: tasks that neither agents nor sandbox ever drew, played straight against it."""

from contextlib import aclosing

import anyio
import msgspec

from actors.ports.engines import Engine
from actors.ports.environments import Environment
from actors.rollout.episode_runner import play
from actors.statistics.intervals import wilson


class Success(msgspec.Struct, frozen=True):
    """Share of tasks solved, with its 95 % Wilson interval."""

    rate: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        return f"{100 * self.rate:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


async def held_out(
    engine: Engine,
    environment: Environment,
    tasks: int,
    *,
    temperature: float,
    families: str,
    seed: int,
    width: int = 32,
) -> Success:
    """Play `tasks` held-out tasks, `width` at a time."""
    solved = 0
    slots = anyio.CapacityLimiter(width)

    async def one(number: int) -> None:
        nonlocal solved
        async with slots:
            task = environment.sample(number, "heldout", families)
            async with aclosing(await environment.reset(task)) as episode:
                played = await play(engine, episode, temperature=temperature, seed=seed * 1_000_003 + number)
            solved += played.outcome >= 0.5

    async with anyio.create_task_group() as group:
        for number in range(tasks):
            group.start_soon(one, number)
    low, high = wilson(solved, tasks)
    return Success(solved / tasks, low, high, tasks)

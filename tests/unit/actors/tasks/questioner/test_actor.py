"""The questioner in the daemon: tops up a pool in small steps, stops while learning is frozen, survives a restart."""

from collections.abc import Sequence

import anyio
import pytest

from actors.messages import Task
from actors.ports.environments import Environment
from actors.tasks.questioner.actor import Questioner
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.settings import QuestionerSettings
from actors.tasks.questioner.state import QuestionerState
from tests.support.ledger import Ledger

pytestmark = pytest.mark.anyio
SETTINGS = QuestionerSettings(enabled=True, pause_seconds=1.0, full_seconds=60.0, pool=20)


class Store:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.is_frozen = False

    async def state_get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def state_put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    async def frozen(self) -> bool:
        return self.is_frozen


class Pool:
    """Holds tasks; `play` takes some of those that wait."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.played = 0

    async def offer(self, tasks: Sequence[Task]) -> int:
        before = len(self.tasks)
        self.tasks |= {task.id: task for task in tasks}
        return len(self.tasks) - before

    async def task_counts(self) -> dict[tuple[str, str], int]:
        waiting = len(self.tasks) - self.played
        return {
            ("questioner", "offered"): waiting,
            ("questioner", "active"): self.played,
            ("production", "offered"): 99,
        }


class Turns:
    """A context that drains after some pauses."""

    def __init__(self, turns: int) -> None:
        self.draining = anyio.Event()
        self.left, self.pauses = turns, list[float]()

    def beat(self) -> None:
        pass

    async def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.left -= 1
        if not self.left:
            self.draining.set()
        return bool(self.left)

    async def emit(self, result: object) -> None:
        raise AssertionError("it has no outputs")


def made(store: Store, pool: Pool, environment: Environment | None = None, seed: int = 0) -> Questioner:
    def make(state: QuestionerState | None) -> Generator:
        return Generator(SETTINGS, environment or Ledger(), clock=lambda: 0.0, seed=seed, state=state)

    return Questioner(SETTINGS, store=store, sink=pool, make=make)


async def run(questioner: Questioner, turns: int) -> list[float]:
    context = Turns(turns)
    await questioner.start()
    await questioner.run(context)
    return context.pauses


async def test_it_tops_the_pool_up_and_then_waits_until_some_were_played():
    store, pool = Store(), Pool()
    questioner = made(store, pool)
    pauses = await run(questioner, 8)
    assert len(pool.tasks) == 20 == questioner.offered
    assert {task.origin for task in pool.tasks.values()} == {"questioner"}
    assert (pauses[0], pauses[-1]) == (1.0, 60.0)
    pool.played = 5
    await run(made(store, pool), 8)
    assert len(pool.tasks) == 25


async def test_it_stops_while_learning_is_frozen():
    store, pool = Store(), Pool()
    store.is_frozen = True
    environment = Ledger()
    assert await run(made(store, pool, environment), 3) == [1.0, 1.0, 1.0]
    assert (pool.tasks, environment.resets) == ({}, 0)


async def test_a_restart_goes_on_and_repeats_no_task():
    store, pool = Store(), Pool()
    await run(made(store, pool), 1)
    before = dict(pool.tasks)
    again = made(store, pool)
    await run(again, 1)
    assert again.state.round == 2
    assert len(pool.tasks) == len(before) + again.offered
    assert len({task.goal for task in pool.tasks.values()}) == len(pool.tasks)


async def test_a_crash_before_its_state_was_kept_offers_the_same_tasks_again():
    store, pool = Store(), Pool()
    await run(made(store, pool), 1)
    store.values.clear()
    before = dict(pool.tasks)
    again = made(store, pool)
    pool.played = len(before)
    await run(again, 1)
    assert (again.offered, pool.tasks) == (0, before)


async def test_what_other_settings_left_behind_is_put_aside():
    store, pool = Store(), Pool()
    await run(made(store, pool), 2)
    other = made(store, pool, seed=1)
    await other.start()
    assert other.state.round == 0
    store.values["questioner/state"] = b"{"
    damaged = made(store, pool)
    await damaged.start()
    assert damaged.state.round == 0

"""The questioner in the daemon: tops up a pool in small steps, stops while learning is frozen, survives a restart."""

import anyio
import msgspec
import pytest

from actors.messages import Directive, Task
from actors.ports.environments import Environment
from actors.store import Store
from actors.tasks.questioner import actor
from actors.tasks.questioner.actor import Questioner
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.settings import QuestionerSettings
from actors.tasks.questioner.state import QuestionerState
from tests.support.ledger import Ledger

pytestmark = pytest.mark.anyio


class Turns:
    """An outbox that drains after some pauses."""

    def __init__(self, turns: int) -> None:
        self.draining, self.lifecycle = anyio.Event(), self
        self.left, self.pauses = turns, list[float]()

    def beat(self) -> None:
        pass

    async def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.left -= 1
        if not self.left:
            self.draining.set()
        return bool(self.left)

    async def insist(self, operation):
        return await operation()


def made(store: Store, environment: Environment | None = None, seed: int = 0) -> Questioner:
    def make(state: QuestionerState | None) -> Generator:
        return Generator(QuestionerSettings(), environment or Ledger(), clock=lambda: 0.0, seed=seed, state=state)

    return Questioner(store=store, make=make)


async def run(questioner: Questioner, turns: int) -> list[float]:
    outbox = Turns(turns)
    await questioner.start()
    await questioner.run(outbox)
    return outbox.pauses


async def pool(store: Store) -> list[Task]:
    """What it has handed over, played or not."""
    return [one.task for one in await store.task_states() if one.task.origin == "questioner"]


async def play(store: Store, count: int) -> None:
    waiting = [one for one in await store.task_states(("offered",)) if one.task.origin == "questioner"]
    await store.mark_tasks([msgspec.structs.replace(one, state="active") for one in waiting[:count]])


async def test_it_tops_the_pool_up_and_then_waits_until_some_were_played(store: Store, monkeypatch):
    monkeypatch.setattr(actor, "_POOL", 20)
    await store.offer([Task(id=f"p{n}", goal="g", environment="e", origin="production") for n in range(30)])
    questioner = made(store)
    pauses = await run(questioner, 8)
    assert len(await pool(store)) == 20 == questioner.offered
    assert (pauses[0], pauses[-1]) == (5.0, 60.0)
    await play(store, 5)
    await run(made(store), 8)
    assert len(await pool(store)) == 25


async def test_it_stops_while_learning_is_frozen(store: Store):
    await store.save([Directive(id="d", kind="freeze", reason="x", origin="control", created=1.0)])
    environment = Ledger()
    assert await run(made(store, environment), 3) == [5.0, 5.0, 5.0]
    assert (await pool(store), environment.resets) == ([], 0)


async def test_a_restart_goes_on_and_repeats_no_task(store: Store):
    await run(made(store), 1)
    before = await pool(store)
    again = made(store)
    await run(again, 1)
    assert again.state.round == 2
    after = await pool(store)
    assert len(after) == len(before) + again.offered == len({task.goal for task in after})


async def test_a_state_that_is_lost_or_of_other_settings_is_put_aside_and_the_same_tasks_are_made_again(store: Store):
    await run(made(store), 1)
    other = made(store, seed=1)
    await other.start()
    assert other.state.round == 0
    before = await pool(store)
    await play(store, len(before))
    await store.state_put("questioner/state", b"{")
    again = made(store)
    await run(again, 1)
    assert (again.state.round, again.offered) == (1, 0)
    assert {task.id for task in await pool(store)} == {task.id for task in before}

"""The pool of self-made tasks: offered once, marked, bounded, and gone with what it was made from."""

import msgspec
import pytest

from actors.messages import Task
from actors.store import Store
from actors.store import tasks as pool
from actors.store.erasing import Selector
from tests.support.credited import attributed

pytestmark = pytest.mark.anyio


def task(key: str, *made_from: str, origin: str = "production") -> Task:
    return Task(id=key, goal=f"goal {key}", environment="fake", origin=origin, spec={"made_from": list(made_from)})


async def test_what_was_offered_waits_and_is_not_offered_twice(store: Store) -> None:
    assert await store.offer([task("a", "run"), task("b")], made_from=["seen"]) == 2
    assert await store.offer([task("b"), task("c")]) == 1
    states = {one.task.id: one for one in await store.task_states()}
    assert {key: one.state for key, one in states.items()} == {"a": "offered", "b": "offered", "c": "offered"}
    assert states["a"].task == task("a", "run")


async def test_what_is_noted_of_a_task_is_found_again_by_state(store: Store) -> None:
    await store.offer([task("a"), task("b")])
    (first, _) = await store.task_states()
    noted = msgspec.structs.replace(
        first, state="set_aside", reason="all solved", tried=8, solved=8, successes=7.5, agreed=2, last=5.0, again=9.0
    )
    await store.mark_tasks([noted])
    assert await store.task_states(["set_aside"]) == [noted]
    assert [one.task.id for one in await store.task_states()] == ["b", "a"], "played longest ago first"
    assert (await store.task_count("production", "offered"), await store.task_count("other", "offered")) == (1, 0)


async def test_the_pool_is_bounded_and_the_retired_make_room_first(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(pool, "ROOM", 3)
    await store.offer([task("a"), task("b"), task("c")])
    held = {one.task.id: one for one in await store.task_states()}
    await store.mark_tasks([msgspec.structs.replace(held["b"], state="retired")])
    await store.offer([task("d")])
    assert sorted(one.task.id for one in await store.task_states()) == ["a", "c", "d"]


async def test_a_task_goes_with_the_trajectory_that_it_was_made_from_and_stays_away(store: Store) -> None:
    await store.save([attributed("run"), attributed("other")])
    await store.offer([task("a", "run"), task("b", "other"), task("c")])
    await store.offer([task("d")], made_from=["run"])
    held = await store.task_states()
    selector = Selector(trajectories=("run",))
    scope = await store.find(selector)
    await store.tombstone(selector, scope)
    await store.erase(scope)
    await store.mark_tasks(held)
    assert sorted(one.task.id for one in await store.task_states()) == ["b", "c"]
    assert await store.offer([task("a", "run"), task("e")], made_from=["run"]) == 0
    assert sorted(one.task.id for one in await store.task_states()) == ["b", "c"]

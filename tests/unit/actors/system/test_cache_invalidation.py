"""Actors rebuild what they keep in memory when somebody changed the store under them."""

import pytest

from actors.system.actor import Result
from actors.system.cache_invalidation import CacheInvalidation
from tests.unit.actors.system.conftest import Recorder

pytestmark = pytest.mark.anyio


async def test_an_idle_actor_starts_anew_soon_after_it_is_asked_and_once(rig):
    invalidation, actor = CacheInvalidation(), Recorder()
    rig.add(actor, invalidation=invalidation)

    async def ask():
        assert actor.starts == 1
        invalidation.ask()
        invalidation.ask()

    async def look():
        assert actor.starts == 2

    assert await rig.run_for(20, (5, ask), (8, look))
    assert actor.starts == 2


async def test_a_batch_that_came_after_it_was_asked_meets_the_new_memory(rig):
    invalidation = CacheInvalidation()
    actor = Recorder()
    starts_seen = []
    actor.reply = lambda batch: starts_seen.append(actor.starts) or Result()
    rig.add(actor, invalidation=invalidation)

    async def ask_and_publish():
        invalidation.ask()
        await rig.publish("a")

    assert await rig.run_for(10, (5, ask_and_publish))
    assert (actor.handled, starts_seen) == (["a"], [2])


async def test_without_one_nobody_starts_anew(rig):
    actor = Recorder()
    rig.add(actor)
    assert await rig.run_for(10)
    assert actor.starts == 1

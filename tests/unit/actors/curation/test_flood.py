"""Agents without number, goals without end: bounded in memory and time, and nobody else's knowledge is lost."""

import random
import time

import msgspec

from actors.curation.pool import CuratorSettings
from actors.kinds.levels import AGENTS, GOALS, PLACES, REST
from tests.support.flood import QUIET, Curation, loud, quiet


def test_a_flood_of_agents_and_goals_is_bounded_in_memory_and_time() -> None:
    rng, made, took = random.Random(0), Curation(), list[float]()
    for number in range(2500):
        run = quiet(number) if number % 40 == 0 else loud(rng, number)
        begun = time.process_time()
        made.take(run)
        took.append(time.process_time() - begun)
    assert sorted(took)[len(took) // 2] < 0.02
    assert made.pool.waiting <= CuratorSettings().pool_production
    assert len(made.curriculum.gains) <= 1024
    state = msgspec.msgpack.decode(made.curriculum.levels.to_save() or b"")
    assert len(state["places"]) <= PLACES
    assert all(len(level) <= most for level, most in zip(state["known"], (GOALS, PLACES, AGENTS), strict=True))
    assert len(made.kinds.to_save() or b"") < 4_000_000
    assert all(made.curriculum.kind(goal) != REST for goal in QUIET)
    estimate = made.kinds.estimate(quiet(9999))
    assert estimate is not None
    assert estimate.mean > 0.8


def test_a_batch_out_of_a_full_pool_of_strange_goals_takes_no_time_and_is_not_the_strangers() -> None:
    rng, made = random.Random(1), Curation()
    for number in range(600):
        made.take(quiet(number) if number % 20 == 0 else loud(rng, number))
    begun = time.process_time()
    selected = made.pool.select(600.0)
    assert time.process_time() - begun < 2.0
    assert selected is not None
    callers = [item.attributed.trajectory.caller for item in selected.items]
    assert callers.count("quiet") >= len(callers) // 2

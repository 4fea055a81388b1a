"""The pool: what is published, and what has to go when it is full."""

from collections import Counter

import msgspec

from actors.experience.pool import EVICTED, LessonPool
from actors.messages import Experience


def lesson(id: str, state: str = "candidate", **fields: object) -> Experience:
    given = {"when_to_use": id, "content": f"{id}:{id}", "revision": -1}
    return Experience(id=id, state=state, **{**given, **fields})  # type: ignore[arg-type]


def filled(size: int, *lessons: Experience) -> LessonPool:
    pool = LessonPool(size)
    pool.load(lessons)
    return pool


def states(pool: LessonPool) -> dict[str, str]:
    return {one.id: one.state for one in pool}


def test_a_batch_publishes_one_revision_however_often_a_lesson_changed():
    pool = filled(10)
    pool.put(lesson("a"))
    pool.put(lesson("a", "active"))
    assert [(one.state, one.revision, one.updated) for one in pool.revised(5.0)] == [("active", 0, 5.0)]
    pool.put(msgspec.structs.replace(lesson("a", "retired"), revision=0))
    assert [one.revision for one in pool.revised(6.0)] == [1]
    assert pool.revised(7.0) == []


def test_when_it_is_full_retired_lessons_leave_memory_first():
    pool = filled(
        3, *(lesson(f"r{n}", "retired", updated=float(n), revision=n) for n in range(4)), lesson("a", "active")
    )
    assert states(pool) == {"r2": "retired", "r3": "retired", "a": "active"}
    assert pool.counts == Counter(dropped_retired=2)
    assert pool.revised(9.0) == [], "the store has them retired already"


def test_then_those_go_whose_utility_is_the_least_at_best_and_that_is_published():
    weak = lesson("weak", guided=(50, 5), unguided=(50, 40), revision=1)
    good = lesson("good", "active", guided=(50, 45), unguided=(50, 5), revision=1)
    untried = lesson("untried", revision=1)
    pool = filled(2, weak, good, untried)
    assert [(one.id, one.state, one.reason) for one in pool.revised(9.0)] == [("weak", "retired", EVICTED)]
    assert pool.counts["evicted"] == 1


def test_a_tenant_that_fills_the_pool_evicts_only_its_own():
    pool = filled(4, *(lesson(f"q{n}", tenant="quiet") for n in range(3)))
    for n in range(50):
        pool.put(lesson(f"l{n}", tenant="loud"))
        pool.revised(float(n))
    held = Counter(one.tenant for one in pool if one.state != "retired")
    assert held["quiet"] == 3
    assert held["loud"] <= 4
    assert sum(1 for _ in pool) <= 9


def test_what_others_wrote_is_taken_over_and_an_older_revision_is_not():
    pool = filled(10, lesson("a", "candidate", revision=2), lesson("b", "active", revision=2))
    forgotten = lesson("a", "retired", revision=3, reason="forgotten", content="")
    imported = lesson("c", revision=0)
    news = pool.absorb([forgotten, lesson("b", "retired", revision=1), imported, lesson("d", "retired", revision=5)])
    assert [one.id for one in news] == ["a", "c"]
    assert states(pool) == {"a": "retired", "b": "active", "c": "candidate"}
    assert pool.counts["forgotten"] == 1
    assert pool.revised(9.0) == [], "it is published already"


def test_tools_that_are_gone_take_their_lessons_along_whatever_the_kind():
    skill = lesson("s", "active", kind="skill", detail={"calls": [{"tool": "book", "arguments": {}}]}, revision=0)
    memory = lesson("m", "active", kind="tool", when_to_use="book", revision=0)
    learnt = lesson(
        "l", "retired", when_to_use="book", content="search then book:book", reason="internalised", revision=0
    )
    other = lesson("o", "active", when_to_use="cancel", content="cancel:cancel", revision=0)
    pool = filled(10, skill, memory, learnt, other)
    pool.retire_about(frozenset({"book"}), "default")
    assert states(pool) == {"s": "retired", "m": "retired", "l": "retired", "o": "active"}
    assert pool.get("l").reason == "its tool is gone"


def test_an_active_practice_takes_the_place_of_one_that_says_otherwise_and_of_none_that_only_its_writer_can_read():
    words = {"when_to_use": "refund", "kind": "practice"}
    pool = filled(10)
    pool.put(lesson("a", "active", content="Always state the order.", **words))
    pool.put(lesson("b", "active", content="Look at the policy of the shop first.", **words))
    pool.put(lesson("c", "active", content="refund:create_refund", **words))
    assert states(pool) == {"a": "active", "b": "active", "c": "active"}
    pool.put(lesson("d", "active", content="refund:refunds.create", **words))
    assert states(pool) == {"a": "active", "b": "active", "c": "retired", "d": "active"}

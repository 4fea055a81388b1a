"""What makes a batch, and why the rest does not."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.curation.pool import WAIT_SECONDS, CuratorSettings, TrainingPool
from actors.messages import Attributed, BatchItem, Serving
from tests.support.credited import attributed, candidate, group

MIXED = [0.0, 1.0, 1.0, 0.0]


def serve(made: TrainingPool, version: int, since: float = 0.0) -> None:
    made.freshness.serves(
        Serving(id=f"s{version}", engine="serving", version=version, previous=0, path="", result="swapped", since=since)
    )


def move(made: TrainingPool, head: int, serves: int | None = None) -> None:
    """The learner has made versions up to `head`, one out of the other; `serves` serves, or else the newest."""
    for version in range(1, head + 1):
        made.freshness.trained(candidate(version, created=version))
    serve(made, head if serves is None else serves)


def pool(*items: Attributed, newest: int = 0, **settings) -> TrainingPool:
    rules = {"groups_per_batch": 2, "group_size": 4, **settings}
    made = TrainingPool(CuratorSettings(**rules), exam=lambda key: False)
    move(made, newest)
    for item in items:
        made.add(item, 0.0)
    return made


def traffic(*items: Attributed, **settings) -> TrainingPool:
    return pool(*items, groups_per_batch=0, **{"production_per_batch": 4, **settings})


def ids(selected: list[BatchItem]) -> list[str]:
    return [item.attributed.id for item in selected]


def dropped(made: TrainingPool) -> Counter[str]:
    """How many were dropped since this was last asked for, by reason."""
    return Counter(drop.reason for drop in made.take_drops())


def test_a_batch_waits_for_its_complete_groups() -> None:
    made = pool(*group("a", MIXED), *group("b", MIXED)[:3], *group("b", MIXED)[:3])
    assert not made.select(1.0)
    made.add(group("b", MIXED)[3], 1.0)
    selected = made.select(1.0)
    assert ids(selected) == [f"{name}-{number}" for name in "ab" for number in range(4)]
    assert made.waiting == 0
    made.add(attributed("a-9", source="sandbox", group="a"), 2.0)
    assert not made.select(999.0)
    assert [(drop.id, drop.reason) for drop in made.take_drops()] == [("a-9", "group too small")], "a straggler"


def test_groups_with_equal_outcomes_count_towards_the_number_and_stay_out() -> None:
    made = pool(*group("a", MIXED), *group("b", [1.0] * 4))
    selected = made.select(1.0)
    assert ids(selected) == ["a-0", "a-1", "a-2", "a-3"]
    assert {(drop.id, drop.reason) for drop in made.take_drops()} == {(f"b-{n}", "equal outcomes") for n in range(4)}


def test_a_group_that_stays_incomplete_is_used_if_it_is_large_enough() -> None:
    made = pool(*group("a", MIXED), *group("b", MIXED[:3]), groups_per_batch=1, group_size=5, group_seconds=60.0)
    assert not made.select(59.0)
    assert ids(made.select(60.0)) == ["a-0", "a-1", "a-2", "a-3"]
    assert dropped(made) == {"group too small": 3}


def test_production_joins_groups_up_to_its_share() -> None:
    items = [attributed(f"p{number}", ended=float(number)) for number in range(9)]
    made = pool(*group("a", MIXED), *group("b", MIXED), *items, production_share=0.2)
    selected = made.select(1.0)
    assert ids(selected)[8:] == ["p8", "p7"]
    assert made.waiting == 7


@pytest.mark.parametrize(
    ("items", "ordered", "left"),
    [(group("a", MIXED), 4, 0), ([attributed(f"p{n}") for n in range(9)], 8, 1)],
    ids=["groups", "production for a sandbox that is gone"],
)
def test_what_waits_too_long_for_others_is_ordered_without_them(items, ordered: int, left: int) -> None:
    made = pool(*items, groups_per_batch=8)
    assert not made.select(10.0), "from now on it waits"
    assert not made.select(9.0 + WAIT_SECONDS)
    assert len(ids(made.select(10.0 + WAIT_SECONDS))) == ordered
    assert not made.select(1e9)
    assert made.waiting == left, "one is no batch"


def test_what_production_cannot_be_trained_on_has_a_reason() -> None:
    made = traffic(
        attributed("a", outcome=float("nan")),
        attributed("b", trainable=False, why_not="temperature"),
        attributed("c", min_version=-1),
        attributed("d", source="probe"),
        attributed("e", source="sandbox"),
    )
    reasons = {drop.id: drop.reason for drop in made.take_drops()}
    assert reasons == {
        "a": "outcome not finite", "b": "untrainable", "c": "unknown version", "d": "probe", "e": "no group",
    }  # fmt: skip
    assert made.waiting == 0


def test_production_without_an_outcome_waits_for_it_elsewhere_and_must_be_fresh_when_it_comes() -> None:
    made = traffic(*(attributed(f"p{number}", outcome=None) for number in range(5)))
    assert not made.select(1.0)
    assert (made.waiting, made.take_drops()) == (0, [])
    for number in range(4):
        made.add(attributed(f"p{number}"), 2.0)
    assert sorted(ids(made.select(2.0))) == ["p0", "p1", "p2", "p3"]
    move(made, 5)
    made.add(attributed("p4"), 3.0)
    assert [(drop.id, drop.reason) for drop in made.take_drops()] == [("p4", "stale")]


def test_a_run_whose_report_cannot_be_used_is_dropped_once() -> None:
    made = traffic(attributed("p", outcome=None))
    made.add(attributed("p", outcome=float("inf")), 2.0)
    move(made, 5)
    made.select(3.0)
    assert [(drop.id, drop.reason) for drop in made.take_drops()] == [("p", "outcome not finite")]


def test_the_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.curation.pool.POOL_PRODUCTION", 4)
    monkeypatch.setattr("actors.curation.pool.POOL_GROUPS", 2)
    made = traffic(*(attributed(f"p{number}") for number in range(6)), production_per_batch=9)
    assert (made.waiting, dropped(made)) == (4, {"pool full": 2})
    made = pool(*(item for name in "abc" for item in group(name, MIXED)), groups_per_batch=9)
    assert (made.waiting, dropped(made)) == (8, {"pool full": 4})


runs = st.builds(
    attributed,
    st.text("abcdefgh0123", min_size=1, max_size=4),
    source=st.sampled_from(["production", "sandbox", "probe"]),
    group=st.sampled_from(["", "g1", "g2"]),
    tenant=st.sampled_from(["one", "two"]),
    outcome=st.sampled_from([None, 0.0, 1.0]),
    trainable=st.booleans(),
    min_version=st.integers(-1, 6),
    experience_ids=st.sampled_from([(), ("e",)]),
)


@pytest.mark.promise
@given(
    items=st.lists(runs, max_size=40, unique_by=lambda item: item.id), by_groups=st.booleans(), newest=st.integers(0, 6)
)
def test_every_trajectory_is_used_dropped_or_waiting_and_only_once(items, by_groups: bool, newest: int) -> None:
    made = pool(*items, newest=newest, groups_per_batch=1 if by_groups else 0, production_per_batch=2)
    used: list[str] = []
    for now in (1.0, 2.0, 1000.0):
        if selected := made.select(now):
            used += ids(selected)
            assert all(newest - item.attributed.trajectory.min_version <= 4 for item in selected)
    dropped = [drop.id for drop in made.take_drops()]
    assert len(set(used)) == len(used)
    assert len(set(dropped)) == len(dropped)
    assert not set(used) & set(dropped)
    told = [item for item in items if item.trajectory.source != "production" or item.trajectory.outcome is not None]
    untold = {item.id for item in items} - {item.id for item in told} - set(dropped)
    assert len(used) + len(dropped) + made.waiting == len(items) - len(untold)


def test_what_is_played_must_still_be_fresh_one_update_later() -> None:
    made = pool(max_staleness=2)
    move(made, 5)
    assert [made.trains(version) for version in range(8)] == [False, False, False, False, True, True, True, True]
    assert pool(max_staleness=0).trains(0), "what is the newest always can"


@pytest.mark.parametrize("who", [{"tenant": "quiet"}, {"caller": "b"}], ids=["tenant", "key"])
def test_one_party_alone_may_fill_a_batch_but_not_crowd_others_out(who: dict[str, str]) -> None:
    loud = [attributed(f"p{n}", ended=50.0 + n, caller="a") for n in range(6)]
    assert len(ids(traffic(*loud).select(1.0))) == 4
    quiet = [attributed(f"q{n}", **{"caller": "a", **who}) for n in range(2)]
    assert ids(traffic(*loud, *quiet).select(1.0)) == ["p5", "p4", "q0", "q1"]


def test_what_waits_behind_the_learner_is_fresh_when_it_goes_back_and_stale_when_something_newer_serves() -> None:
    made = traffic(*(attributed(f"p{number}") for number in range(4)), *group("a", MIXED))
    move(made, 5, serves=0)
    assert not made.select(1.0), "five updates behind what is trained"
    assert (made.waiting, made.fresh, made.behind) == (4, 0, 4)
    assert dropped(made) == {"stale": 4}, "the sandbox can play again"
    made.freshness.trained(candidate(1, id="s", parent=0, created=8.0, answer="skipped"))
    assert made.freshness.head == 5, "a skipped order moves nothing"
    made.freshness.trained(candidate(0, created=9.0, answer="went_back"))
    assert made.fresh == 4
    serve(made, 5, since=1.0)
    made.freshness.trained(candidate(5, id="again", created=10.0, answer="went_back"))
    assert not made.select(2.0)
    assert {drop.reason for drop in made.take_drops()} == {"stale"}


def test_after_a_rollback_runs_of_the_branch_that_was_left_are_dropped_and_the_others_are_not() -> None:
    made = traffic()
    move(made, 10)
    for number in range(4):
        made.add(attributed(f"bad{number}", min_version=10), 1.0)
    made.freshness.trained(candidate(0, created=99.0, answer="went_back"))
    serve(made, 0, since=99.0)
    for number in range(4):
        made.add(attributed(f"late{number}"), 2.0)
    assert sorted(ids(made.select(2.0))) == ["late0", "late1", "late2", "late3"]
    assert {drop.reason for drop in made.take_drops()} == {"abandoned"}
    made.freshness.trained(candidate(11, parent=0, created=100.0))
    made.add(attributed("on"), 3.0)
    assert made.fresh == 1, "v11 was made of v0: its runs are one update behind"

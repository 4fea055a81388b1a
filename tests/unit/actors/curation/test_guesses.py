"""Runs with a provisional outcome in the pool: after the reported ones, never the gate's, never without an estimate."""

import pytest

from actors.curation.pool import CuratorSettings, TrainingPool
from actors.kinds.kinds import Kinds
from actors.messages import Attributed
from actors.provisional.waiting import Chance
from tests.support.credited import attributed


def pool(*, exam: bool = False, reported: int = 40, batch: int = 4) -> TrainingPool:
    kinds = Kinds()
    for number in range(reported):
        kinds.tell(attributed(f"past{number}", outcome=float(number % 2), caller=f"k{number % 5}").trajectory)
    rules = CuratorSettings(groups_per_batch=0, production_per_batch=batch, max_staleness=4, provisional=True)
    return TrainingPool(rules, rules.curriculum(kinds), exam=lambda key: exam)


def guess(into: TrainingPool, item: Attributed, chance: float = 0.9, weight: float = 1.0) -> bool:
    into.guess(item, Chance(id=item.id, chance=chance, weight=weight))
    return into.guesses > 0


def waits(into: TrainingPool, key: str, **fields: object) -> Attributed:
    item = attributed(key, outcome=None, **fields)
    into.add(item, 1.0)
    return item


def test_they_take_what_room_reported_runs_leave() -> None:
    one = pool()
    for key in "abcd":
        assert guess(one, waits(one, key))
    one.add(attributed("told", outcome=1.0), 1.0)
    kinds = [item.attributed.trajectory.provisional for item in one.select(2.0)]
    assert kinds == [False, True, True, True]
    assert one.guesses == 1, "the fourth waits on, for a report or a batch"


@pytest.mark.parametrize(("chance", "weight"), [(0.9, 1.0), (0.9, 0.25), (0.1, 0.5), (0.5, 1.0)])
def test_the_outcome_is_what_was_expected_moved_by_weight_towards_the_chance(chance: float, weight: float) -> None:
    one = pool(batch=1)
    guess(one, waits(one, "a"), chance, weight)
    (item,) = one.select(2.0)
    run, estimate = item.attributed.trajectory, item.estimate
    assert run.outcome - estimate == pytest.approx(weight * (chance - estimate))


def test_without_an_estimate_there_is_none() -> None:
    one = pool(reported=0, batch=1)
    guess(one, waits(one, "a"))
    assert not one.select(2.0)


def test_a_report_takes_its_place() -> None:
    one = pool(batch=1)
    item = waits(one, "a")
    guess(one, item)
    one.add(attributed("a", outcome=0.0), 2.0)
    (selected,) = one.select(3.0)
    run = selected.attributed.trajectory
    assert (run.outcome, run.provisional) == (0.0, False)


def test_the_gates_runs_and_untrainable_ones_are_never_guessed() -> None:
    one = pool(exam=True)
    assert not guess(one, waits(one, "a"))
    other = pool()
    assert not guess(other, waits(other, "b", trainable=False, why_not="greedy"))


def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.curation.pool.POOL_PRODUCTION", 2)
    one = pool(batch=4)
    for key in "abc":
        guess(one, waits(one, key))
    assert one.guesses == 2
    one.drop_guesses()
    assert one.guesses == 0

"""Runs wait for what happens next: reported or not, in whatever order, bounded."""

import random

import msgspec
import pytest

from actors.messages import Step, Trajectory
from actors.provisional import waiting
from actors.provisional.outcome_model import learn
from actors.provisional.waiting import RIPE, Provisional

LATER = 1e9


def run(number: int, said: str = "", outcome: float | None = None, **fields) -> Trajectory:
    steps = (Step(exchange_id=f"x{number}", text="Done.", observation=said, role="desk#1"),)
    if said:
        steps = (*steps, Step(exchange_id=f"y{number}", text="I see.", role="desk#1"))
    values: dict = {
        "goal": f"please refund order K{number}", "caller": f"key{number % 6}", "steps": steps, "outcome": outcome,
        "started": 10.0 * number, "ended": 10.0 * number + 1, "min_version": 0, "max_version": 0,
    }  # fmt: skip
    return Trajectory(id=f"r{number}", **{**values, **fields})


@pytest.fixture
def taught() -> Provisional:
    known, rng = Provisional(), random.Random(0)
    for number in range(120):
        well = rng.random() < 0.6
        known.saw(run(number, "thanks, perfect" if well else "that is wrong", float(well)))
    known.ripen(LATER)
    assert known.model.adopt(learn(*known.model.to_learn()))
    return known


def test_a_run_is_due_once_when_it_is_ripe_and_the_model_may_speak(taught) -> None:
    taught.saw(run(500, "and what are your opening hours"))
    assert taught.due(run(500).ended + RIPE - 1, 10) == []
    (due,) = taught.due(run(500).ended + RIPE, 10)
    assert (due.id, due.weight, taught.due(LATER, 10)) == ("r500", 1.0, [])
    taught.give_again()
    assert len(taught.due(LATER, 10)) == 1


def test_nothing_more_is_waited_for_once_the_user_has_reacted(taught) -> None:
    taught.saw(run(500, "thanks, perfect"))
    (due,) = taught.due(run(500).ended, 10)
    assert due.chance > 0.8


@pytest.mark.parametrize("exam", [True, False])
def test_a_report_waits_for_the_aftermath_which_the_gates_runs_tell_of_too(exam) -> None:
    known = Provisional()
    known.saw(run(1, outcome=0.0))
    assert len(known.model) == 0
    later = {"continues": "r1", "resumed_with": "that is wrong", "caller": "key1", "started": 12.0, "ended": 13.0}
    known.saw(run(2, outcome=1.0 if exam else None, **later), exam=exam)
    known.ripen(LATER)
    assert known.model.knows("r1").vector.signals["complaint"] == -1
    assert not exam or known.runs == ["r1"]


def test_a_late_report_is_learned_from_with_what_was_known_when_the_run_was_ripe(taught) -> None:
    taught.saw(run(500, "thanks, perfect"))
    taught.ripen(LATER)
    taught.told(run(500, "thanks, perfect", 0.0))
    piece = taught.model.knows("r500")
    assert (piece.outcome, piece.by, (piece.said or 0) > 0.8) == (0.0, 1, True)
    assert taught.counts["contradicted"] == 1, "the report wins, and that they differ is counted"
    assert taught.due(LATER, 10) == []
    taught.told(run(500, "thanks, perfect", 1.0, outcome_revision=1))
    assert taught.model.knows("r500").outcome == 1.0


def test_it_never_learns_from_what_it_said_itself(taught) -> None:
    before = len(taught.model)
    taught.saw(run(500))
    taught.ripen(LATER)
    taught.told(msgspec.structs.replace(run(500, outcome=0.7), provisional=True))
    assert len(taught.model) == before


def test_the_sandbox_and_repeats_are_left_out() -> None:
    known = Provisional()
    for one in (run(1, source="sandbox"), run(3), run(3)):
        known.saw(one)
    assert known.counts["runs"] == 1


def test_what_waits_is_bounded_and_what_makes_room_is_counted(monkeypatch) -> None:
    monkeypatch.setattr(waiting, "OPEN", 5)
    monkeypatch.setattr(waiting, "KNOWN", 7)
    known = Provisional()
    for number in range(30):
        known.saw(run(number, "x" * 1_000_000))
    assert (len(known), known.counts["made_room"], known.counts["forgotten"]) == (12, 25, 18)
    known.erase([f"r{number}" for number in range(30)])
    assert len(known) == 0

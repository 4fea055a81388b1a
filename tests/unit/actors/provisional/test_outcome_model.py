"""The outcome model: skill where there is some, no weight where there is none, versions, saved state, liars."""

import json
import random

import msgspec
import pytest

from actors.provisional.features import Vector, vector, without
from actors.provisional.outcome_model import FRESH, WINDOW, OutcomeModel, Piece, learn
from actors.provisional.signal_records import RECENT
from actors.provisional.signals import SIGNALS
from actors.provisional.skill import LEAST, NONE
from actors.provisional.transcript import Transcript

THANKS, COMPLAINT = {"thanks": 1}, {"complaint": -1}


def read(key: str = "new", signals: dict[str, int] | None = None, agent: str = "desk", answer: str = "done") -> Vector:
    transcript = Transcript(
        id=key, tenant="t", party="p", agent=agent, goal="refund it", turns=(), resumed="", continues="", answer=answer,
        calls=(("refund", "ok"),), repeated=0, steps=2, errors=0, invalid=0, asked=False, cut=False, version=0,
        started=0.0, ended=1.0,
    )  # fmt: skip
    return vector(transcript, signals or {})


def piece(number: int, outcome: float, signals: dict[str, int], *, agent: str = "desk", **fields) -> Piece:
    values: dict = {"version": 0, "party": f"p{number % 6}", "vector": read(f"r{number}", signals, agent), **fields}
    return Piece(id=f"r{number}", agent=agent, outcome=outcome, **values)


def told(model: OutcomeModel, seed: int, numbers: range, *, right: float, **fields) -> None:
    """Thanks or a complaint, right in a share of runs."""
    rng = random.Random(seed)
    for number in numbers:
        well = rng.random() < 0.6
        seems = well == (rng.random() < right)
        model.tell(piece(number, float(well), THANKS if seems else COMPLAINT, **fields))


def fit(model: OutcomeModel) -> None:
    model.adopt(learn(*model.to_learn()))


def taught(count: int = 200, *, right: float = 0.9, seed: int = 0) -> OutcomeModel:
    model = OutcomeModel()
    told(model, seed, range(count), right=right)
    fit(model)
    return model


def chance(model: OutcomeModel, signals: dict[str, int], agent: str = "desk") -> float:
    return model.chance(agent, read(signals=signals, agent=agent))


def test_it_learns_what_a_signal_is_worth_and_has_no_weight_without_skill() -> None:
    model = taught()
    assert chance(model, THANKS) == pytest.approx(0.93, abs=0.06)
    assert chance(model, COMPLAINT) == pytest.approx(0.14, abs=0.08)
    assert model.weight("desk") == 1.0
    assert [taught(150, right=0.5, seed=seed).weight("desk") for seed in range(3)] == [0.0] * 3


def test_no_outcome_judges_its_own_run() -> None:
    """With a word of its own in each run a model that saw the run would know each outcome: this one knows none."""
    rng, model = random.Random(3), OutcomeModel()
    for number in range(120):
        own = read(f"r{number}", answer=f"word{chr(97 + number % 26)}{chr(97 + number // 26)}")
        model.tell(piece(number, float(rng.random() < 0.5), {}, vector=own))
    fit(model)
    assert (model.serving.skill.skill < 0.05, model.weight("desk")) == (True, 0.0)


def test_too_few_outcomes_or_one_kind_alone_make_no_weight() -> None:
    few, same = OutcomeModel(), OutcomeModel()
    told(few, 0, range(LEAST - 1), right=1.0)
    assert (few.to_learn(), few.weight("desk")) == (None, 0.0)
    for number in range(60):
        same.tell(piece(number, 1.0, THANKS))
    fit(same)
    assert same.weight("desk") == 0.0


def test_an_agent_whose_signals_mean_nothing_is_left_out_alone() -> None:
    model = OutcomeModel()
    told(model, 1, range(300), right=0.95)
    # The other agent's users thank when it went badly: what is learned of all is surely wrong of it at first.
    told(model, 2, range(300, 400), right=0.05, agent="forger")
    fit(model)
    assert model.weight("desk") > 0.0
    assert chance(model, THANKS, "forger") < 0.5, "signal and agent together have learned what thanks mean there"


@pytest.mark.parametrize("liar", [0.1, 0.3])
def test_one_party_that_lies_does_not_turn_it(liar: float) -> None:
    model, rng = OutcomeModel(), random.Random(2)
    for number in range(600):
        lies, well = rng.random() < liar, rng.random() < 0.6
        party = {"party": "liar"} if lies else {}
        model.tell(piece(number, float(well != lies), THANKS if well else COMPLAINT, **party))
    fit(model)
    assert chance(model, COMPLAINT) < 0.4 < 0.65 < chance(model, THANKS)
    assert model.weight("desk") > 0.0


def test_a_signal_that_begins_to_lie_is_kept_apart_and_told_of() -> None:
    model = OutcomeModel()
    for number in range(5 * RECENT):
        well = number % 4 > 0
        seems = THANKS if well or number >= 4 * RECENT else COMPLAINT
        model.tell(piece(number, float(well and number < 4 * RECENT), seems))
        if number == 4 * RECENT - 1:
            fit(model)
            assert not model.quarantined
    fit(model)
    assert model.quarantined == {"desk": frozenset({"thanks"})}
    model.read("desk", THANKS)
    record = next(one for one in model.records() if one.signal == "thanks")
    assert (record.quarantined, record.precision < 1.0) == (True, True)
    assert without(read(signals=THANKS), "desk", frozenset({"thanks"})).signals == {}


def test_a_policy_that_learned_to_look_good_is_told_of_and_weighs_nothing() -> None:
    model = taught(right=0.95)
    for number in range(200, 240):
        model.tell(piece(number, 0.0, THANKS, version=7, said=0.9, by=1))
    fit(model)
    gap = model.gaps()[-1]
    assert (gap.version, gap.overrated, gap.reported, model.weight("desk")) == (7, True, 0.0, 0.0)


def test_a_version_that_becomes_worse_than_the_one_before_gives_way() -> None:
    model = taught(120, right=0.95)
    first = model.serving
    bad = msgspec.structs.replace(first, number=2, fitted=model._sequence, weights=[-one for one in first.weights])
    model._versions, model._serving = [first, bad], 2
    told(model, 5, range(120, 120 + 2 * FRESH), right=0.95)
    model._go_back()
    assert (model.serving, model.counts["rolled_back"]) == (first, 1)


def test_what_is_saved_comes_back_whole_and_what_was_changed_is_not_taken() -> None:
    model, again = taught(100), OutcomeModel()
    model.read("desk", THANKS)
    data = model.to_save()
    assert model.to_save() is None
    again.load(data)
    assert chance(again, THANKS) == chance(model, THANKS)
    assert (again.weight("desk"), again.records()) == (model.weight("desk"), model.records())
    assert again.to_learn() is None, "nothing new has come"
    saved = json.loads(data)
    other = {**saved, "body": saved["body"].replace('"outcome":1.0', '"outcome":0.0', 1)}
    for bad in (data[: len(data) // 2], json.dumps(other).encode(), b"", json.dumps({**saved, "format": 99}).encode()):
        again = OutcomeModel()
        again.load(bad)
        assert (again.serving, len(again), again.counts["unreadable"]) == (None, 0, 1)


def test_a_correction_is_the_same_run_and_erased_runs_are_learned_from_no_more() -> None:
    model = taught(60)
    model.tell(piece(5, 0.25, THANKS))
    assert (len(model), model.knows("r5").outcome) == (60, 0.25)
    model.erase({"r5"})
    assert (model.knows("r5"), model.serving) == (None, None)


def test_nonsense_is_counted_and_the_window_is_bounded() -> None:
    model = OutcomeModel()
    assert not model.tell(piece(0, float("nan"), {}))
    for number in range(WINDOW + 10):
        model.tell(piece(number, 5.0, {}))
    assert (model.counts["not_a_number"], len(model), model.live) == (1, WINDOW, NONE)
    assert {one.outcome for one in (model.knows(key) for key in model.runs) if one} == {1.0}
    assert Vector([], [], dict.fromkeys(SIGNALS, 0)).places == []

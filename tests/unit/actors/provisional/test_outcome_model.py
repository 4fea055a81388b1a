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


def read(key: str, agent: str = "desk", answer: str = "done") -> Transcript:
    return Transcript(
        id=key, tenant="t", party="p", agent=agent, goal="refund it", turns=(), resumed="", continues="", answer=answer,
        calls=(("refund", "ok"),), repeated=0, steps=2, errors=0, invalid=0, asked=False, cut=False, version=0,
        started=0.0, ended=1.0,
    )  # fmt: skip


def piece(number: int, outcome: float, signals: dict[str, int], *, party: str = "", **fields: object) -> Piece:
    agent = str(fields.pop("agent", "desk"))
    values: dict = {"version": 0, **fields}
    return Piece(
        id=f"r{number}", party=party or f"p{number % 6}", agent=agent, outcome=outcome,
        vector=vector(read(f"r{number}", agent), signals), **values,
    )  # fmt: skip


def told(model: OutcomeModel, rng: random.Random, numbers: range, *, right: float, **fields: object) -> None:
    """Thanks or a complaint, right in a share of runs."""
    for number in numbers:
        well = rng.random() < 0.6
        seems = well == (rng.random() < right)
        model.tell(piece(number, float(well), {"thanks": 1} if seems else {"complaint": -1}, **fields))


def fitted(model: OutcomeModel) -> bool:
    wanted = model.to_learn()
    assert wanted is not None
    return model.adopt(learn(*wanted))


def test_it_learns_what_a_signal_is_worth() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(200), right=0.9)
    assert fitted(model)
    good, bad = (model.chance("desk", vector(read("new"), said)) for said in ({"thanks": 1}, {"complaint": -1}))
    assert good is not None
    assert bad is not None
    assert good == pytest.approx(0.93, abs=0.06)
    assert bad == pytest.approx(0.14, abs=0.08)
    assert model.weight("desk") == 1.0


def test_without_skill_it_has_no_weight() -> None:
    for seed in range(5):
        model = OutcomeModel()
        told(model, random.Random(seed), range(150), right=0.5)
        fitted(model)
        assert model.weight("desk") == 0.0


def test_no_outcome_judges_its_own_run() -> None:
    """With a word of its own in each run a model that saw the run would know each outcome: this one knows none."""
    rng = random.Random(3)
    model = OutcomeModel()
    for number in range(120):
        own = vector(read(f"r{number}", answer=f"word{chr(97 + number % 26)}{chr(97 + number // 26)}"), {})
        model.tell(
            Piece(id=f"r{number}", party=f"p{number % 6}", agent="desk", version=0, outcome=float(rng.random() < 0.5),
                  vector=own)
        )  # fmt: skip
    fitted(model)
    assert model.serving is not None
    assert model.serving.skill.skill < 0.05
    assert model.weight("desk") == 0.0


def test_too_few_outcomes_or_one_kind_alone_make_no_weight() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(LEAST - 1), right=1.0)
    assert model.to_learn() is None
    assert model.weight("desk") == 0.0
    same = OutcomeModel()
    for number in range(60):
        same.tell(piece(number, 1.0, {"thanks": 1}))
    fitted(same)
    assert same.weight("desk") == 0.0


def test_an_agent_whose_signals_mean_nothing_is_left_out_alone() -> None:
    model = OutcomeModel()
    rng = random.Random(1)
    told(model, rng, range(300), right=0.95)
    # The other agent's users thank when it went badly: what is learned of all is surely wrong of it at first.
    told(model, rng, range(300, 400), right=0.05, agent="forger")
    fitted(model)
    assert model.weight("desk") > 0.0
    chance = model.chance("forger", vector(read("x", "forger"), {"thanks": 1}))
    assert chance is not None
    assert chance < 0.5, "signal and agent together have learned what thanks mean there"


@pytest.mark.parametrize("liar", [0.1, 0.2, 0.3])
def test_one_party_that_lies_does_not_turn_it(liar: float) -> None:
    model = OutcomeModel()
    rng = random.Random(2)
    for number in range(600):
        lies = rng.random() < liar
        well = rng.random() < 0.6
        said = {"thanks": 1} if well else {"complaint": -1}
        party = "liar" if lies else f"p{number % 6}"
        model.tell(piece(number, float(well != lies), said, party=party))
    fitted(model)
    good = model.chance("desk", vector(read("new"), {"thanks": 1}))
    bad = model.chance("desk", vector(read("new"), {"complaint": -1}))
    assert good is not None
    assert bad is not None
    assert good > 0.65
    assert bad < 0.4
    assert model.weight("desk") > 0.0


def test_a_signal_that_begins_to_lie_is_kept_apart_and_told_of() -> None:
    model = OutcomeModel()
    for number in range(4 * RECENT):
        well = number % 4 > 0
        model.tell(piece(number, float(well), {"thanks": 1} if well else {"complaint": -1}))
    fitted(model)
    assert not model.quarantined
    for number in range(4 * RECENT, 5 * RECENT):
        model.tell(piece(number, 0.0, {"thanks": 1}))
    fitted(model)
    assert model.quarantined == {"desk": frozenset({"thanks"})}
    model.read("desk", {"thanks": 1})
    record = next(one for one in model.records() if one.signal == "thanks")
    assert record.quarantined
    assert record.precision < 1.0
    one = vector(read("new"), {"thanks": 1})
    assert without(one, "desk", frozenset({"thanks"})).signals == {}


def test_a_policy_that_learned_to_look_good_is_told_of_and_weighs_nothing() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(200), right=0.95)
    fitted(model)
    for number in range(200, 240):
        model.tell(piece(number, 0.0, {"thanks": 1}, version=7, said=0.9, by=1))
    fitted(model)
    gap = model.gaps()[-1]
    assert (gap.version, gap.overrated, gap.reported) == (7, True, 0.0)
    assert model.weight("desk") == 0.0


def test_a_version_that_becomes_worse_than_the_one_before_gives_way() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(120), right=0.95)
    fitted(model)
    first = model.serving
    assert first is not None
    bad = msgspec.structs.replace(first, number=2, fitted=model._sequence, weights=[-one for one in first.weights])
    model._versions, model._serving = [first, bad], 2
    told(model, random.Random(5), range(120, 120 + 2 * FRESH), right=0.95)
    model._go_back()
    assert (model.serving, model.counts["rolled_back"]) == (first, 1)


def test_what_is_saved_is_json_with_its_digest_and_comes_back_whole() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(100), right=0.9)
    model.read("desk", {"thanks": 1})
    fitted(model)
    data = model.to_save()
    assert data is not None
    assert model.to_save() is None
    again = OutcomeModel()
    again.load(data)
    one = vector(read("new"), {"thanks": 1})
    assert again.chance("desk", one) == model.chance("desk", one)
    assert again.weight("desk") == model.weight("desk")
    assert again.records() == model.records()
    assert again.to_learn() is None, "nothing new has come"


@pytest.mark.parametrize("kind", ["cut", "changed", "none", "other"])
def test_a_saved_state_that_was_changed_is_not_taken(kind: str) -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(60), right=0.9)
    fitted(model)
    data = model.to_save() or b""
    if kind == "cut":
        data = data[: len(data) // 2]
    elif kind == "changed":
        saved = json.loads(data)
        saved["body"] = saved["body"].replace('"outcome":1.0', '"outcome":0.0', 1)
        data = json.dumps(saved).encode()
    elif kind == "none":
        data = b""
    else:
        data = json.dumps({**json.loads(data), "format": 99}).encode()
    again = OutcomeModel()
    again.load(data)
    assert (again.serving, len(again), again.counts["unreadable"]) == (None, 0, 1)


def test_a_correction_is_the_same_run_and_erased_runs_are_learned_from_no_more() -> None:
    model = OutcomeModel()
    told(model, random.Random(0), range(60), right=0.9)
    fitted(model)
    model.tell(piece(5, 0.25, {"thanks": 1}))
    known = model.knows("r5")
    assert len(model) == 60
    assert known is not None
    assert known.outcome == 0.25
    model.erase({"r5"})
    assert model.knows("r5") is None
    assert model.serving is None


def test_nonsense_is_counted_and_the_window_is_bounded() -> None:
    model = OutcomeModel()
    assert not model.tell(piece(0, float("nan"), {}))
    assert model.counts["not_a_number"] == 1
    for number in range(WINDOW + 10):
        model.tell(piece(number, 5.0, {}))
    assert len(model) == WINDOW
    assert {one.outcome for one in (model.knows(key) for key in model.runs) if one} == {1.0}
    assert model.live == NONE
    assert Vector([], [], dict.fromkeys(SIGNALS, 0)).places == []

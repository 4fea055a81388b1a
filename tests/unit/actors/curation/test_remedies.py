"""One sentence for each agent: is there learning from it, if not why, and what to change."""

import re
from pathlib import Path

import pytest

from actors.curation.agents import AgentView
from actors.curation.remedies import _REMEDIES, calls_that_train, counted, tell

CONFIG = Path(__file__).parents[4] / "config.toml"


def view(**fields: object) -> AgentView:
    values: dict = {
        "agent": "t/desk", "label": "t, desk", "seen": 1.0, "since": 0.0, "runs": 0, "reported": 0, "held_out": 0,
        "ordered": 0, "learned": 0, "unreported": 0, "ready": 0, "training": 0, "dropped": {}, "no_gradient": {},
        "calls": 0, "unfit": {},
    }  # fmt: skip
    return AgentView(**{**values, **fields})


@pytest.mark.parametrize(
    ("agent", "learning", "sentence", "change"),
    [
        (view(runs=20, learned=20), True, "Learning: 20 of 20 runs ordered changed the weights.", ""),
        (
            view(runs=20, learned=12, no_gradient={"equal_outcomes": 8}), True,
            "Learning: 12 of 20 runs ordered changed the weights; 8 gave no gradient: 8 went as well as all that they "
            "were compared with.", "",
        ),
        (
            view(runs=56, learned=3, no_gradient={"zero_advantage": 50, "nothing_to_compare": 3}), True,
            "Hardly learning: 56 runs ordered, 53 gave no gradient: 50 went as was expected of them; 3 had nothing to "
            "be compared with.", "report outcomes that differ",
        ),
        (
            view(runs=8, no_gradient={"equal_outcomes": 8}), False,
            "Not learning: 8 runs ordered, none gave a gradient: 8 went as well as all that they were compared with.",
            "report outcomes that differ",
        ),
        (view(runs=8, training=8), False, "Not learning yet: the first 8 runs are with the learner.", ""),
        (
            view(runs=9, ready=5, unreported=4), False,
            "Not learning yet: 5 of 9 runs can be learned from and wait for an update.", "",
        ),
        (view(runs=1, unreported=1), False, "Not learning: none of 1 run has an outcome.", "report how runs"),
        (
            view(runs=9, reported=2, unreported=7, dropped={"held out": 2}), False,
            "Not learning: of 9 runs none can be learned from: 7 have no outcome yet; 2 are kept for the gate's exam.",
            "report how runs went",
        ),
        (
            view(runs=12, reported=4, unreported=2, dropped={"temperature 0": 10}), False,
            "Not learning: of 12 runs none can be learned from: 2 have no outcome yet; 10 were sampled at temperature "
            "0.",
            "let the agent sample at temperature 1",
        ),
        (
            view(runs=4, reported=4, dropped={"held out": 3, "redacted prompt": 1}), False,
            "Not learning: of 4 runs none can be learned from: 3 are kept for the gate's exam; 1 held prompt that was "
            "redacted.", "send less of such data",
        ),
        (view(runs=1, reported=1, dropped={"held out": 1}), False, "Not learning: of 1 run none", "nothing: a fourth"),
        (
            view(runs=3, reported=3, dropped={"odd": 3}), False,
            "Not learning: of 3 runs none can be learned from: 3 odd.", "",
        ),
        (view(), False, "Not learning yet: no run has come.", ""),
    ],
)  # fmt: skip
def test_each_case_has_its_sentence_and_its_remedy(
    agent: AgentView, learning: bool, sentence: str, change: str
) -> None:
    told = tell(agent)
    assert told.learning == learning
    assert told.sentence.startswith(sentence)
    assert told.remedy.startswith(change)
    assert bool(told.remedy) == bool(change)


def test_reasons_are_counted_in_words_the_commonest_first_and_the_rest_as_one() -> None:
    many = {"a": 1, "stale": 9, "b": 2, "temperature 0": 5}
    assert counted(many) == (
        "9 were too old for the weights that are trained; 5 were sampled at temperature 0; 2 b; 1 for other reasons"
    )
    assert counted({}) == ""


def test_every_setting_that_a_remedy_names_exists():
    known = set()
    section = ""
    for line in CONFIG.read_text().splitlines():
        section = line.strip("[]") if line.startswith("[") else section
        known.add(f"{section}.{line.lstrip('# ').split(' ')[0]}")
    named = {found for _, change in _REMEDIES.values() for found in re.findall(r"\b[a-z]+\.[a-z_]+\b", change)}
    assert {name for name in named if not name.endswith(".md")} <= known


@pytest.mark.parametrize(
    ("agent", "sentence", "change"),
    [
        (view(), "none yet", ""),
        (view(calls=40), "all 40", ""),
        (view(calls=40, unfit={"incomplete": 4}), "90 % of 40; 4 are of runs that had a call that was cut off", ""),
        (
            view(calls=40, unfit={"side call": 20, "no token ids from /v1/messages": 6}),
            "35 % of 40; 6 are of runs that called /v1/messages, and their engine gave no token ids there",
            "install evolved's plug-in",
        ),
    ],
    ids=["no call", "all", "few", "many"],
)
def test_what_share_of_its_calls_trains_and_the_first_reason_why_not(
    agent: AgentView, sentence: str, change: str
) -> None:
    told = calls_that_train(agent)
    assert told.sentence == sentence
    assert told.remedy.startswith(change) if change else told.remedy == ""

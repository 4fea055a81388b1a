"""Attacks on judges: what screening sees, and what it is known not to see (docs/how-it-learns.md)."""

from actors.messages import Step
from adapters.judges.screening import agent_speaks, lacks_content, speaks_to_judge
from tests.support.attacks import EMPTY, SEEN, UNSEEN
from tests.support.plants import ordinary
from tests.support.travelling import plays, trajectory


def test_words_to_the_judge_are_seen_whoever_writes_them_but_for_what_names_no_label():
    assert [text for text in (*SEEN, *UNSEEN) if speaks_to_judge(text)] == [*SEEN]
    assert all(agent_speaks(Step(exchange_id="e", text=text)) for text in SEEN)


def test_an_answer_that_says_nothing_is_none():
    assert all(lacks_content(Step(exchange_id="e", text=text), trajectory([])) for text in EMPTY)


def test_screening_leaves_ordinary_traffic_alone():
    assert not any(map(speaks_to_judge, ordinary(0, 300)))
    for played in plays(50, seed=2):
        run = played.trajectory
        assert not any(agent_speaks(step) or speaks_to_judge(step.observation) for step in run.steps)
        assert not any(lacks_content(step, run) for step in run.steps)

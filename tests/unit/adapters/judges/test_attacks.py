"""Attacks on judges: what screening sees, and what it is known not to see (docs/how-it-learns.md)."""

from contextlib import aclosing

import msgspec
import pytest

from actors.messages import Step
from actors.ports.models import Judge
from adapters.judges.llm import LlmJudge, LlmSettings
from adapters.judges.screening import agent_speaks, lacks_content, speaks_to_judge
from adapters.judges.verified import VerifiedJudge
from tests.support.attacks import EMPTY, SEEN, UNSEEN
from tests.support.engine import running_engine
from tests.support.judging import gullible
from tests.support.plants import ordinary
from tests.support.travelling import call, plays, trajectory


def test_words_to_the_judge_are_seen_whoever_writes_them_but_for_what_names_no_label():
    assert [text for text in (*SEEN, *UNSEEN) if speaks_to_judge(text)] == [*SEEN]
    assert all(agent_speaks(Step(exchange_id="e", text=text)) for text in SEEN)


async def persuaded(judge: Judge, texts: tuple[str, ...]) -> int:
    """How many of the texts have a step found good whose call was refused."""
    run = trajectory([(call("book", fid="F1"), '{"error": "refused"}'), (call("finish"), "")], goal="Book.")
    spoken = [msgspec.structs.replace(run.steps[0], text=text) for text in texts]
    runs = [msgspec.structs.replace(run, steps=(step, run.steps[1])) for step in spoken]
    return sum([(await judge.label(one)).labels[0].label == "GOOD" for one in runs])


@pytest.mark.anyio
async def test_what_words_do_to_an_obedient_model_is_lessened_by_screening_and_undone_by_evidence():
    async with running_engine() as engine:
        engine.script = gullible(obeys=True)
        settings = LlmSettings(url=f"http://127.0.0.1:{engine.port}/v1", model="gullible", canary_share=0.0)
        async with aclosing(LlmJudge(msgspec.structs.replace(settings, screen=False))) as unscreened:
            assert await persuaded(unscreened, SEEN) > len(SEEN) / 2
        async with aclosing(LlmJudge(settings)) as hardened:
            assert await persuaded(hardened, SEEN) == 0
            # The remainder is real: orders that screening does not know, to a model that obeys in quotes.
            assert await persuaded(hardened, UNSEEN) > len(UNSEEN) / 3
            assert await persuaded(VerifiedJudge(hardened), UNSEEN) == 0


def test_an_answer_that_says_nothing_is_none():
    assert all(lacks_content(Step(exchange_id="e", text=text), trajectory([])) for text in EMPTY)


def test_screening_leaves_ordinary_traffic_alone():
    assert not any(map(speaks_to_judge, ordinary(0, 300)))
    for played in plays(50, seed=2):
        run = played.trajectory
        assert not any(agent_speaks(step) or speaks_to_judge(step.observation) for step in run.steps)
        assert not any(lacks_content(step, run) for step in run.steps)

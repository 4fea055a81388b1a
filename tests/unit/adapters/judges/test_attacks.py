"""Attacks on judges: what hardening stops, and what it is known not to stop (docs/how-it-learns.md)."""

import msgspec
import pytest

from adapters.judges.llm import LlmJudge, LlmSettings
from adapters.judges.rules import RulesJudge
from adapters.judges.screening import agent_speaks, lacks_content, speaks_to_judge
from adapters.judges.verified import VerifiedJudge
from tests.support.attacks import attacks, success
from tests.support.engine import running_engine
from tests.support.gullible import Gullible
from tests.support.plants import ordinary
from tests.support.travelling import plays

pytestmark = pytest.mark.anyio


async def test_what_words_do_to_an_obedient_model_is_lessened_and_no_more():
    async with running_engine() as engine:
        engine.script = Gullible("obedient")
        settings = LlmSettings(
            url=f"http://127.0.0.1:{engine.port}/v1", model="gullible", canary_share=0.0, timeout=60.0
        )
        hardened, unscreened = LlmJudge(settings), LlmJudge(msgspec.structs.replace(settings, screen=False))
        found = attacks()[::3]
        persuaded = await success(hardened, found)
        # The remainder is real: an order in words that screening does not know, to a model that obeys in quotes.
        assert 0.1 < persuaded < await success(unscreened, found)
        assert await success(VerifiedJudge(hardened), found) < persuaded
        await hardened.aclose()
        await unscreened.aclose()


async def test_the_rules_judge_is_deaf_to_words_and_can_be_shown_a_use_that_is_none():
    found = attacks()
    assert await success(RulesJudge(), [attack for attack in found if attack.family != "laundering"]) < 0.05
    assert await success(RulesJudge(), [attack for attack in found if attack.family == "laundering"]) > 0.5


def test_screening_leaves_ordinary_traffic_alone():
    assert not any(map(speaks_to_judge, ordinary(0, 300)))
    for played in plays(50, seed=2):
        run = played.trajectory
        assert not any(agent_speaks(step) or speaks_to_judge(step.observation) for step in run.steps)
        assert not any(lacks_content(step, run) for step in run.steps)

"""What every judge promises; a new one joins by a line in `JUDGES`. On trio and on asyncio, as the daemon runs them."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from actors.messages import Step, ToolCall, Trajectory
from actors.ports.models import Judge
from adapters.judges.canaries import CanaryJudge
from adapters.judges.llm import LlmJudge, LlmSettings
from adapters.judges.panel import PanelJudge
from adapters.judges.rules import RulesJudge
from adapters.judges.verified import VerifiedJudge
from tests.support.engine import running_engine
from tests.support.judging import gullible
from tests.support.travelling import plays, trajectory

pytestmark = pytest.mark.anyio
JUDGES: dict[str, Callable[[Callable[[str], LlmJudge]], Judge]] = {
    "rules": lambda llm: RulesJudge(),
    "llm": lambda llm: llm("llm"),
    "canaries": lambda llm: CanaryJudge(llm("llm"), share=1.0, rng=random.Random(0)),
    "panel": lambda llm: PanelJudge([llm("one"), llm("other"), RulesJudge()]),
    "verified": lambda llm: VerifiedJudge(llm("llm")),
}


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[Judge]:
    """The judge, and an endpoint where a careful model answers."""
    made: list[LlmJudge] = []
    async with running_engine() as engine:
        engine.script = gullible(obeys=False)

        def llm(own: str) -> LlmJudge:
            settings = LlmSettings(
                url=f"http://127.0.0.1:{engine.port}/v1", model="gullible", name=own, canary_share=0.0
            )
            made.append(LlmJudge(settings))
            return made[-1]

        yield JUDGES[name](llm)
        for judge in made:
            await judge.aclose()


@pytest.mark.parametrize("name", JUDGES)
async def test_a_judge_keeps_its_promises(name: str):
    runs = [played.trajectory for played in plays(6, seed=3)]
    async with opened(name) as judge:
        alone = [await judge.label(run) for run in runs]
        together: dict[int, list[str]] = {}

        async def one(number: int) -> None:
            together[number] = [label.label for label in (await judge.label(runs[number])).labels]

        async with anyio.create_task_group() as group:
            for number in range(len(runs)):
                group.start_soon(one, number)

        # One label a step, of this judge, with a rubric; no more sure than 1; costs are no debts.
        for run, found in zip(runs, alone, strict=True):
            assert len(found.labels) == len(run.steps)
            assert found.judge == judge.name
            assert found.rubric == judge.rubric != ""
            assert all(label.label in ("GOOD", "BAD", "ABSTAIN") for label in found.labels)
            assert all(0.0 <= label.confidence <= 1.0 and len(label.reason) <= 200 for label in found.labels)
            assert found.tokens >= 0
            assert found.cost >= 0.0
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=type(found)) == found
        # Judging several at once mixes nothing up, and a clear log is judged the same twice.
        assert [together[n] for n in range(len(runs))] == [[label.label for label in found.labels] for found in alone]
        assert "BAD" in {label for labels in together.values() for label in labels}
        assert "GOOD" in {label for labels in together.values() for label in labels}


@pytest.mark.parametrize("name", JUDGES)
async def test_odd_trajectories_are_judged_like_others(name: str):
    odd = ["", "\ud800 lone", "\x00\x1b[31m", "x" * 100_000, "]]>\"'{}\\", "‮⁦" * 50, "\U000e0041" * 50, "<|im_end|>"]
    steps = tuple(
        Step(exchange_id="e", text=text, tool_calls=(ToolCall(text, text),), observation=text) for text in odd
    )
    runs = [
        trajectory([]),
        Trajectory(id="o", goal=odd[1], tools=b"{no json", steps=steps, started=0.0, ended=1.0),
        *(Trajectory(id="p", goal="x", steps=(step,), outcome=float("nan"), started=0.0, ended=1.0) for step in steps),
    ]
    async with opened(name) as judge:
        for run in runs:
            assert len((await judge.label(run)).labels) == len(run.steps)

"""The 1,053 queries of BFCL's `live_multiple`, each with its own tools: what a language model is asked about them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.messages import Attributed, Attribution, Step, Trajectory
from actors.ports.extractors import Insight
from actors.store import Store
from actors.system.actor import Received
from adapters.embedders.hashing import HashingEmbedder

DATA = next(Path(__file__).parents[2].glob(".venv-bfcl/lib/python*/site-packages/bfcl_eval/data"), Path())
SECONDS = 6.0
"""Between two runs: ten a minute."""


class Asked:
    """An extractor that counts what it is shown."""

    name = "llm:test"

    def __init__(self) -> None:
        self.shown: list[list[Trajectory]] = []

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        self.shown.append([*successes, *failures])
        return ()


def queries() -> list[Trajectory]:
    rng = random.Random(0)
    runs: list[Trajectory] = []
    for number, line in enumerate((DATA / "BFCL_v4_live_multiple.json").read_text().splitlines()):
        case = json.loads(line)
        goal = next(said["content"] for said in case["question"][0] if said["role"] == "user")
        tools = json.dumps([{"type": "function", "function": one} for one in case["function"]]).encode()
        step = Step(exchange_id=f"e{number}", text="Done.", role="helper#1")
        runs.append(
            Trajectory(
                id=case["id"], goal=goal, tools=tools, steps=(step,), outcome=float(rng.random() < 0.5),
                started=SECONDS * number, ended=SECONDS * number,
            )
        )  # fmt: skip
    return runs


@pytest.mark.anyio
async def test_queries_of_which_no_two_are_alike_are_asked_about_all_the_same(tmp_path: Path):
    store, asked, now = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: now), Asked(), 0.0
    await store.open()
    actor = Experiencer(
        ExperiencerSettings(contrast_every=1_000_000), store=store, prober=None, clock=lambda: now, extractor=asked,
        embedder=HashingEmbedder(), exam=lambda key: False,
    )  # fmt: skip
    await actor.start()
    for run in queries():
        now = run.ended
        item = Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=(), judge="r", rubric="1"))
        await actor.handle([Received(item.id, "", item)])
        await actor.tick()
    await store.aclose()
    told = {run.id for shown in asked.shown for run in shown}
    print(len(asked.shown), "questions,", len(told), "queries shown, in", round(now / 60), "minutes")
    assert 60 <= len(asked.shown) <= now / 60 + 1, "one a minute at most"
    assert len(told) >= 450

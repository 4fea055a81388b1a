"""The demo counts for itself: the agents' journal against the rows of the store."""

import json
from pathlib import Path

import pytest

from actors.messages import Attributed, Attribution, Exchange, Step, Trajectory
from actors.store import Store
from daemon.demo.accounts import settle

pytestmark = pytest.mark.anyio


def exchange(number: int) -> Exchange:
    return Exchange(
        id=f"e{number}", endpoint="/v1/chat/completions", started=1.0, duration=0.1, status=200, request=b"{}",
        response=b"{}", response_id=f"r{number}",
    )  # fmt: skip


def attributed(key: str, responses: list[str], outcome: float | None) -> Attributed:
    steps = tuple(Step(exchange_id=f"x{r}", response_id=r) for r in responses)
    run = Trajectory(id=key, steps=steps, outcome=outcome, started=0.0, ended=1.0)
    return Attributed(id=key, trajectory=run, attribution=Attribution(labels=(), judge="j", rubric="r"))


async def books(tmp_path: Path, responses: list[str], records: list[object], more: list[dict[str, object]]) -> object:
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 1.0)
    await store.open()
    await store.save(records)  # type: ignore[arg-type]
    await store.aclose()
    journal = tmp_path / "agents.jsonl"
    lines = [{"event": "response", "id": r} for r in responses] + more
    journal.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"event": "resp')
    return settle(journal, f"sqlite:///{tmp_path}/evolved.db")


async def test_all_is_well_when_every_response_has_its_row(tmp_path: Path) -> None:
    got = await books(
        tmp_path, ["r1", "r2"], [exchange(1), exchange(2), attributed("t", ["r1", "r2"], 1.0)],
        [{"event": "episode", "response_id": "r2"}],
    )  # fmt: skip
    assert (got.requests, got.lost, got.doubled, got.episodes, got.outcomes) == (2, 0, 0, 1, 1)


async def test_a_response_without_a_row_is_lost(tmp_path: Path) -> None:
    got = await books(tmp_path, ["r1", "r2"], [exchange(1)], [])
    assert got.lost == 1
    assert len(got.missing) == 1


async def test_a_response_in_two_trajectories_is_doubled(tmp_path: Path) -> None:
    records = [exchange(1), attributed("t", ["r1"], 1.0), attributed("u", ["r1"], None)]
    got = await books(tmp_path, ["r1"], records, [])
    assert (got.doubled, got.outcomes) == (1, 1)


async def test_failures_that_the_agents_saw_are_counted(tmp_path: Path) -> None:
    got = await books(tmp_path, [], [], [{"event": "failed", "error": "502"}, {"event": "feedback_failed"}])
    assert (got.failed, got.feedback_failed) == (1, 1)


async def test_what_agents_kept_to_themselves_is_no_outcome_that_is_missing(tmp_path: Path) -> None:
    records = [exchange(1), exchange(2), attributed("t", ["r1"], 1.0), attributed("u", ["r2"], None)]
    episodes = [{"event": "episode", "response_id": one} for one in ("r1", "r2")]
    got = await books(tmp_path, ["r1", "r2"], records, [*episodes, {"event": "feedback", "status": 202}])
    assert (got.episodes, got.reported, got.outcomes) == (2, 1, 1)

"""What unmodified clients really send, from the recordings: one run is one trajectory, with ids and without them."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Exchange, Hints
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.tap import read_call
from tests.unit.actors.trajectories.made import built, closed, names, stitcher_of

RECORDED = sorted((Path(__file__).parents[3] / "clients" / "recorded").glob("*.jsonl"))


def runs_of(path: Path) -> list[list[dict[str, Any]]]:
    """The calls of each run in a recording."""
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    return [list(group) for _, group in groupby(calls, key=lambda call: call["script"])]


RUNS = [pytest.param(run, id=f"{path.stem}-{number}") for path in RECORDED for number, run in enumerate(runs_of(path))]


def raw(call: dict[str, Any], number: int, **fields: Any) -> Exchange:
    values = {"response": json.dumps(call["response"]).encode(), "status": call["status"]}
    return Exchange(
        id=f"x{number}", endpoint=call["path"], request=json.dumps(call["request"]).encode(), started=float(number),
        duration=0.5, **(values | fields),
    )  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_one_trajectory(run: list[dict[str, Any]]) -> None:
    exchanges = [read_call(raw(call, number)) for number, call in enumerate(run)]
    assert [exchange.error for exchange in exchanges] == [""] * len(run)
    (found,) = closed(*exchanges)
    assert names(found) == " ".join(exchange.id for exchange in exchanges)
    assert found.confidence == 1.0 or not any(step.tool_calls for step in found.steps)
    assert all(step.text or step.tool_calls for step in found.steps)
    asked = json.dumps([call["request"] for call in run])
    if "previous_response_id" in asked:
        return  # the client names the response and leaves the answer out: only the server has it
    alone = dict[str, Any](source="mirror", status=0, response=b"")
    (mirrored,) = closed(*(read_call(raw(call, number, **alone)) for number, call in enumerate(run)))
    calls = [[call.name for call in step.tool_calls] for step in found.steps]
    assert [[call.name for call in step.tool_calls] for step in mirrored.steps] == [*calls[:-1], []]
    assert (mirrored.why_not, mirrored.confidence) == ("mirrored", 0.6)
    if '"item_reference"' not in asked:
        without_ids = stitcher_of()
        for exchange in exchanges:
            without_ids.add(msgspec.structs.replace(read_turn(exchange), answered=(), hints=Hints()), 0.0)
        (by_words,) = built(without_ids.close_due(10_000.0))
        assert (len(by_words.steps), by_words.confidence) == (len(run), 0.8)


def test_the_recordings_are_there() -> None:
    assert len(RECORDED) > 10

"""What unmodified clients really send, from the recordings: one run is one trajectory, with ids and without them."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.messages import Trajectory
from actors.messages.spool import RawExchange
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import ParsedExchange, read_turn
from actors.trajectories.stitching import Limits, Stitcher
from adapters.intake.tap import exchange_from_raw

RECORDED = sorted((Path(__file__).parents[3] / "clients" / "recorded").glob("*.jsonl"))
LIMITS = Limits()


def runs_of(path: Path) -> list[list[dict[str, Any]]]:
    """The calls of each run in a recording."""
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    return [list(group) for _, group in groupby(calls, key=lambda call: (call["script"], call["streamed"]))]


RUNS = [pytest.param(run, id=f"{path.stem}-{number}") for path in RECORDED for number, run in enumerate(runs_of(path))]


def raw(call: dict[str, Any], number: int) -> RawExchange:
    response = call["response"]
    if isinstance(response, list):
        response = "".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in response)
    elif not isinstance(response, str):
        response = json.dumps(response)
    return RawExchange(
        id=f"x{number}", path=call["path"], request=json.dumps(call["request"]).encode(), response=response.encode(),
        status=call["status"], content_type=call["content_type"], received=float(number), finished=number + 0.5,
    )  # fmt: skip


def closed(turns: list[ParsedExchange]) -> list[Trajectory]:
    stitcher = Stitcher(LIMITS)
    for turn in turns:
        assert stitcher.add(turn, 0.0)
    return [built.run for closing in stitcher.close_due(10_000.0) for built in build_all(closing)]


def refers_to_what_only_the_server_has(run: list[dict[str, Any]]) -> bool:
    """The client leaves the answer out and names the response, or an item of it, instead."""
    return any(
        "previous_response_id" in call["request"] or '"item_reference"' in json.dumps(call["request"]) for call in run
    )


def test_the_recordings_are_there() -> None:
    assert len(RECORDED) > 10


@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_one_trajectory(run: list[dict[str, Any]]) -> None:
    exchanges = [exchange_from_raw(raw(call, number)) for number, call in enumerate(run)]
    assert [exchange.error for exchange in exchanges] == [""] * len(run)
    (found,) = closed([read_turn(exchange) for exchange in exchanges])
    assert [step.exchange_id for step in found.steps] == [exchange.id for exchange in exchanges]
    assert found.confidence == 1.0 or not any(step.tool_calls for step in found.steps)
    assert all(step.text or step.tool_calls for step in found.steps)


@pytest.mark.parametrize("run", [p for p in RUNS if not refers_to_what_only_the_server_has(p.values[0])])
def test_without_ids_it_is_one_trajectory_by_what_was_said(run: list[dict[str, Any]]) -> None:
    turns = [read_turn(exchange_from_raw(raw(call, number))) for number, call in enumerate(run)]
    (found,) = closed([msgspec.structs.replace(turn, answered=(), previous="") for turn in turns])
    assert (len(found.steps), found.confidence) == (len(run), 0.8)


@pytest.mark.parametrize("run", [p for p in RUNS if "previous_response_id" not in json.dumps(p.values[0])])
def test_mirrored_requests_alone_give_the_run_and_all_answers_but_the_last(run: list[dict[str, Any]]) -> None:
    mirrored = [
        msgspec.structs.replace(raw(call, number), source="mirror", status=0, response=b"")
        for number, call in enumerate(run)
    ]
    (found,) = closed([read_turn(exchange_from_raw(record)) for record in mirrored])
    (seen,) = closed([read_turn(exchange_from_raw(raw(call, number))) for number, call in enumerate(run)])
    calls = [[call.name for call in step.tool_calls] for step in seen.steps]
    assert [[call.name for call in step.tool_calls] for step in found.steps] == [*calls[:-1], []]
    assert (found.why_not, found.confidence) == ("mirrored", 0.6)

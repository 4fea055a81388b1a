"""Runs that something was taken out of: rendered anew, trained on what is left, and marked as of another context."""

import json
from typing import Any

import pytest

from actors.messages import Exchange, Trajectory, ids_array, pack_array, steps_array
from actors.ports.errors import EngineUnavailable
from tests.support.traffic import exchange, feedback
from tests.unit.actors.trajectories.made import Bench

pytestmark = pytest.mark.anyio
STAND_IN = [91, 92]


class Tokenizer:
    """Renders a conversation as the test's traffic does, with one id for the placeholder in it."""

    def __init__(self, *, away: bool = False) -> None:
        self.away, self.asked = away, 0

    async def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        self.asked += 1
        if self.away:
            raise EngineUnavailable("engine", "away")
        turns = sum(message["role"] == "assistant" for message in messages)
        return [1] * 9 + [90] + [7] * 7 * turns

    async def tokenize(self, text: str) -> list[int]:
        assert text == 'to "[REDACTED:email]"'
        return STAND_IN


def redacted(number: int, *, part: str = "prompt", sampled: list[int] | None = None, **fields: Any) -> Exchange:
    ids = sampled or [3, 4, 5, 2]
    told: dict[str, Any] = {"prompt_ids": b""} if part == "prompt" else {}
    runs = sum(one == -1 and (at == 0 or ids[at - 1] != -1) for at, one in enumerate(ids))
    told |= {
        "response_ids": pack_array(ids, "<i4"), "logprobs": pack_array([-0.5] * len(ids), "<f4"), "versions": (),
        "redacted": (part,), "finds": {"email": 1}, "masked": ('to "[REDACTED:email]"',) * runs,
    }  # fmt: skip
    return exchange("a", number, **(told | fields))


async def closed(bench: Bench, engine: Tokenizer | None, *calls: Exchange) -> Trajectory:
    """The run of `calls`, the first of which was open when the daemon started anew."""
    for some in (calls[:1], calls[1:]):
        await bench.restart(serving=lambda name, started, ended: 3, engine=engine)
        await bench.see(*some)
    await bench.see(feedback("a", len(calls) - 1))
    (run,) = await bench.later()
    return run


async def test_a_run_whose_prompt_was_redacted_trains_in_the_context_that_is_left(bench: Bench) -> None:
    run = await closed(bench, Tokenizer(), redacted(0))
    assert (run.trainable, run.why_not) == (True, "")
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 9 + [90, 3, 4, 5, 2]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4
    assert (row.redacted, row.masked, run.min_version) == (True, 0, 3)


async def test_what_is_masked_in_an_answer_is_context_and_the_rest_is_trained(bench: Bench) -> None:
    run = await closed(bench, Tokenizer(), redacted(0, part="response", sampled=[3, -1, -1, 5, 6, 2]))
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 10 + [3, *STAND_IN, 5, 6, 2]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0, -1, -1, 0, 0, 0]
    assert (row.redacted, row.masked) == (True, 2)
    assert ids_array(row.versions).tolist()[10:] == [3, -1, -1, 3, 3, 3]


async def test_what_was_sampled_before_the_first_find_keeps_its_recorded_log_probs_in_a_row_of_its_own(
    bench: Bench,
) -> None:
    run = await closed(bench, Tokenizer(), exchange("a", 0), redacted(1))
    assert [row.redacted for row in run.rows] == [False, True]
    assert [step.row for step in run.steps] == [0, 1]


WITH_KWARGS = json.loads(exchange("a", 0).request) | {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("engine", "call", "why", "asked"),
    [
        (Tokenizer(), redacted(0, part="response", sampled=[3, -1, -1, -1, 2]), "redacted too much", 0),
        (None, redacted(0), "redacted prompt", 0),
        (Tokenizer(away=True), redacted(0), "redacted prompt", 2),
        # A prompt that is more than messages and tools is not rendered.
        (Tokenizer(), redacted(0, request=json.dumps(WITH_KWARGS).encode()), "redacted prompt", 0),
    ],
)
async def test_what_is_left_may_not_be_enough(bench: Bench, engine: Any, call: Exchange, why: str, asked: int) -> None:
    run = await closed(bench, engine, call)
    assert (run.trainable, run.why_not) == (False, why)
    assert bool(run.rows) == (why == "redacted too much")
    assert engine is None or engine.asked == asked

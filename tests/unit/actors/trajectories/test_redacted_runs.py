"""Runs that something was taken out of: rendered anew, trained on what is left, and marked as of another context."""

import json
from typing import Any

import pytest

from actors.messages import Exchange, Trajectory, ids_array, pack_array, steps_array
from actors.ports.errors import EngineUnavailable
from actors.store import Store
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from actors.trajectories.assembler import Assembler, AssemblerSettings
from tests.support.driving import Driver
from tests.support.traffic import exchange, feedback

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


async def closed(store_url: str, engine: Tokenizer | None, *calls: Exchange) -> Trajectory:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    rules = AssemblerSettings()
    now = [5000.0]
    assembler = Assembler(
        rules, store=store, clock=lambda: now[0], serving=lambda name, started, ended: 3, engine=engine
    )
    driver = Driver(assembler, store)
    await assembler.start()
    await driver.feed(TRAFFIC_EXCHANGE, *calls[:1])
    again = Driver(assembler, store)
    await assembler.start()
    await again.feed(TRAFFIC_EXCHANGE, *calls[1:])
    await again.feed(TRAFFIC_FEEDBACK, feedback("a", len(calls) - 1))
    now[0] += 100.0
    (run,) = await again.tick()
    assert isinstance(run, Trajectory)
    await store.aclose()
    return run


async def test_a_run_whose_prompt_was_redacted_trains_in_the_context_that_is_left(store_url: str) -> None:
    run = await closed(store_url, Tokenizer(), redacted(0))
    assert (run.trainable, run.why_not) == (True, "")
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 9 + [90, 3, 4, 5, 2]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0] * 4
    assert (row.redacted, row.masked, run.min_version) == (True, 0, 3)


async def test_what_is_masked_in_an_answer_is_context_and_the_rest_is_trained(store_url: str) -> None:
    run = await closed(store_url, Tokenizer(), redacted(0, part="response", sampled=[3, -1, -1, 5, 6, 2]))
    (row,) = run.rows
    assert ids_array(row.ids).tolist() == [1] * 10 + [3, *STAND_IN, 5, 6, 2]
    assert steps_array(row.step).tolist() == [-1] * 10 + [0, -1, -1, 0, 0, 0]
    assert (row.redacted, row.masked) == (True, 2)
    assert ids_array(row.versions).tolist()[10:] == [3, -1, -1, 3, 3, 3]


async def test_what_was_sampled_before_the_first_find_keeps_its_recorded_log_probs_in_a_row_of_its_own(
    store_url: str,
) -> None:
    run = await closed(store_url, Tokenizer(), exchange("a", 0), redacted(1))
    assert [row.redacted for row in run.rows] == [False, True]
    assert [step.row for step in run.steps] == [0, 1]


async def test_a_run_that_is_mostly_placeholders_is_not_trained(store_url: str) -> None:
    run = await closed(store_url, Tokenizer(), redacted(0, part="response", sampled=[3, -1, -1, -1, 2]))
    assert (run.trainable, run.why_not) == (False, "redacted too much")


@pytest.mark.parametrize("engine", [None, Tokenizer(away=True)])
async def test_without_an_engine_a_redacted_run_is_kept_and_says_why_it_does_not_train(
    store_url: str, engine: Tokenizer | None
) -> None:
    run = await closed(store_url, engine, redacted(0))
    assert (run.trainable, run.why_not, run.rows) == (False, "redacted prompt", ())


async def test_a_prompt_that_is_more_than_messages_and_tools_is_not_rendered(store_url: str) -> None:
    asked = json.loads(exchange("a", 0).request) | {"chat_template_kwargs": {"enable_thinking": False}}
    engine = Tokenizer()
    run = await closed(store_url, engine, redacted(0, request=json.dumps(asked).encode()))
    assert (run.why_not, engine.asked) == ("redacted prompt", 0)

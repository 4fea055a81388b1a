"""The LLM judge at an endpoint that fails it: formats, retries, deadlines, garbage, wrong doors."""

import json
import traceback
from email.utils import formatdate

import anyio
import msgspec
import pytest

from actors.messages import Attribution, Trajectory
from actors.ports.errors import JudgeUnavailable
from adapters.judges.llm import LlmJudge
from tests.support.engine import answer
from tests.support.judging import all_good, asked_for, completion, judge_at, says, sends, writes
from tests.support.travelling import call, trajectory

pytestmark = pytest.mark.anyio


def run(steps: int = 3, **fields: object) -> Trajectory:
    turns = [(call("find_person", name=f"Mia{n}"), json.dumps({"pid": f"K{n}"})) for n in range(steps)]
    return trajectory(turns, goal="Find them all.", **fields)


def words_of(attribution: Attribution) -> list[str]:
    return [label.label for label in attribution.labels]


async def test_structured_output_is_found_out_once_and_remembered():
    async def only_objects(engine, asked, stream):
        if asked.json.get("response_format", {}).get("type") == "json_schema":
            await stream.send(answer(400, {"error": {"message": "response_format json_schema is not supported"}}))
        else:
            await stream.send(answer(200, completion(all_good(*asked_for(asked)))))
        return True

    async with judge_at(only_objects) as (judge, engine):
        for _ in range(3):
            assert words_of(await judge.label(run())) == ["GOOD"] * 3
    formats = [asked.json.get("response_format", {}).get("type") for asked in engine.asked]
    assert formats == ["json_schema", "json_object", "json_object", "json_object"]
    assert judge.counts["speaks_json_object"] == 1


async def test_without_any_structured_output_the_strict_parser_has_to_do():
    async def plain(engine, asked, stream):
        body = {"error": {"message": "unknown field response_format"}}
        refused = "response_format" in asked.json
        await stream.send(answer(422, body) if refused else answer(200, completion(all_good(*asked_for(asked)))))
        return True

    async with judge_at(plain) as (judge, engine):
        assert [words_of(await judge.label(run())) for _ in range(2)] == [["GOOD"] * 3] * 2
    assert len(engine.asked) == 4
    assert judge.counts["speaks_text"] == 1


async def test_an_endpoint_that_stops_taking_a_format_is_asked_anew():
    behaviour = {"schema": True}

    async def fickle(engine, asked, stream):
        if "response_format" in asked.json and not behaviour["schema"]:
            await stream.send(answer(400, {"error": {"message": "response_format: unknown"}}))
        else:
            await stream.send(answer(200, completion(all_good(*asked_for(asked)))))
        return True

    async with judge_at(fickle) as (judge, _):
        await judge.label(run())
        behaviour["schema"] = False
        assert words_of(await judge.label(run())) == ["GOOD"] * 3
    assert judge.counts["speaks_text"] == 1


@pytest.mark.parametrize("status", [408, 529])
async def test_what_passes_by_itself_is_tried_again_within_bounds_and_then_waited_for(status: int):
    async with judge_at(says({"error": {"message": "later"}}, status)) as (judge, engine):
        with pytest.raises(JudgeUnavailable, match=str(status)):
            await judge.label(run())
    assert len(engine.asked) == 3
    assert (judge.counts["retried"], judge.counts["unavailable"]) == (2, 1)


async def test_a_short_trouble_is_not_noticed():
    async def twice(engine, asked, stream):
        troubled = len(engine.asked) < 3
        await stream.send(answer(503, {}) if troubled else answer(200, completion(all_good(*asked_for(asked)))))
        return True

    async with judge_at(twice) as (judge, _):
        assert words_of(await judge.label(run())) == ["GOOD"] * 3


@pytest.mark.parametrize("value", ["3600", formatdate(4102444800, usegmt=True)])
async def test_retry_after_beyond_the_patience_ends_the_attempts_and_is_passed_on(value: str):
    head = f"HTTP/1.1 429 X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
    async with judge_at(sends(head), patience=30.0) as (judge, engine):
        with pytest.raises(JudgeUnavailable) as caught:
            await judge.label(run())
    assert len(engine.asked) == 1
    assert caught.value.retry_after >= 3600


async def test_retry_after_is_waited_for_where_there_is_time():
    async def once(engine, asked, stream):
        if len(engine.asked) == 1:
            await stream.send(b"HTTP/1.1 429 X\r\nRetry-After: 0.3\r\nContent-Length: 0\r\n\r\n")
        else:
            await stream.send(answer(200, completion(all_good(*asked_for(asked)))))
        return True

    async with judge_at(once) as (judge, _):
        began = anyio.current_time()
        await judge.label(run())
        assert anyio.current_time() - began >= 0.3


async def test_an_endpoint_that_hangs_is_away_after_the_attempts():
    async def hang(engine, asked, stream):
        await anyio.sleep_forever()
        return False

    async with judge_at(hang, timeout=0.1, attempts=2) as (judge, _):
        with pytest.raises(JudgeUnavailable, match=r"no answer within 0\.1 s"):
            await judge.label(run())
    assert judge.counts["timeout"] == 2


async def test_an_answer_that_drips_for_ever_is_cut_by_the_deadline():
    async def drip(engine, asked, stream):
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await stream.send(b" ")
            await anyio.sleep(0.02)

    async with judge_at(drip, timeout=0.2, attempts=1) as (judge, _):
        with pytest.raises(JudgeUnavailable):
            await judge.label(run())


@pytest.mark.parametrize(("status", "outcome"), [(200, "too_large"), (500, "status_500")])
async def test_endless_garbage_costs_a_bounded_amount_of_memory(status: int, outcome: str):
    sent = 0

    async def flood(engine, asked, stream):
        nonlocal sent
        await stream.send(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        while True:
            await stream.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536

    async with judge_at(flood, attempts=1) as (judge, _):
        if status == 200:
            assert words_of(await judge.label(run())) == ["ABSTAIN"] * 3
        else:
            with pytest.raises(JudgeUnavailable):
                await judge.label(run())
    assert judge.counts[outcome] == 1
    assert sent < 32 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff garbage \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"half\":",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
    ],
)  # fmt: skip
async def test_a_connection_that_breaks_off_is_no_opinion(data: bytes):
    async with judge_at(sends(data)) as (judge, engine):
        with pytest.raises(JudgeUnavailable):
            await judge.label(run())
    assert len(engine.asked) == 3


async def test_nobody_at_the_address_is_unavailable():
    async with judge_at(writes()) as (judge, engine):
        pass
    judge = LlmJudge(msgspec.structs.replace(judge._settings, url=f"http://127.0.0.1:{engine.port}/v1"))
    with pytest.raises(JudgeUnavailable, match="cannot be reached"):
        await judge.label(run())
    await judge.aclose()


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "key_env"), (403, "key_file"), (404, "model"), (307, "redirects")]
)
async def test_a_wrong_door_is_said_with_its_remedy_and_not_tried_again(status: int, remedy: str):
    head = f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".encode()
    async with judge_at(sends(head), key="sk-secret") as (judge, engine):
        with pytest.raises(JudgeUnavailable, match=remedy) as caught:
            await judge.label(run())
    assert len(engine.asked) == 1
    assert engine.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))

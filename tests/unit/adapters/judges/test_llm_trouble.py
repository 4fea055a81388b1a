"""The LLM judge at an endpoint that fails it: formats, retries, deadlines, garbage, wrong doors."""

import itertools
import traceback
from email.utils import formatdate
from typing import Any

import anyio
import msgspec
import pytest

from actors.ports.errors import JudgeUnavailable
from adapters.judges.llm import LlmJudge
from tests.support.answers import completion
from tests.support.engine import answer
from tests.support.judging import all_good, asked_for, find_them_all, judge_at, says, sends, writes

pytestmark = pytest.mark.anyio


async def judged(judge: LlmJudge) -> list[str]:
    return [label.label for label in (await judge.label(find_them_all())).labels]


def until(refuses: Any, status: int, body: object = None, head: bytes = b"") -> Any:
    """A script: an answer, but where `refuses(request, its number)` that status."""
    numbers = itertools.count()

    async def script(engine, asked, stream):
        if refuses(asked.json, next(numbers)):
            await stream.send(head or answer(status, body or {}))
        else:
            await stream.send(answer(200, completion(all_good(*asked_for(asked)))))
        return True

    return script


def format_of(body: dict[str, Any]) -> str:
    return body.get("response_format", {}).get("type", "text")


FORMATS = {
    "objects alone": (
        lambda body, _: format_of(body) == "json_schema", 400, "response_format json_schema is not supported",
        ["json_schema", "json_object", "json_object", "json_object"],
    ),
    "none": (lambda body, _: "response_format" in body, 422, "unknown field response_format",
             ["json_schema", "json_object", "text", "text", "text"]),
    "none any more": (lambda body, number: number > 0 and "response_format" in body, 400, "response_format: unknown",
                      ["json_schema", "json_schema", "json_schema", "json_object", "text", "text"]),
}  # fmt: skip


@pytest.mark.parametrize(("refuses", "status", "message", "formats"), FORMATS.values(), ids=FORMATS)
async def test_structured_output_is_found_out_once_and_remembered(refuses, status, message, formats):
    async with judge_at(until(refuses, status, {"error": {"message": message}})) as (judge, engine):
        for _ in range(3):
            assert await judged(judge) == ["GOOD"] * 3
    assert [format_of(asked.json) for asked in engine.asked] == formats
    assert judge.counts[f"speaks_{formats[-1]}"] == 1


async def hang(engine, asked, stream):
    await anyio.sleep_forever()


async def drip(engine, asked, stream):
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await stream.send(b" ")
        await anyio.sleep(0.02)


def door(status: int) -> Any:
    return sends(f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".encode())


AWAY = {
    "passes by itself": (says({"error": {"message": "later"}}, 408), {}, 3, "408"),
    "a status of their own": (says({"error": {"message": "later"}}, 529), {}, 3, "529"),
    "hangs": (hang, {"timeout": 0.1, "attempts": 2}, 2, r"no answer within 0\.1 s"),
    "drips for ever": (drip, {"timeout": 0.2, "attempts": 1}, 1, None),
    "closes": (sends(b""), {}, 3, None),
    "speaks no HTTP": (sends(b"\x00\xff garbage \r\n\r\n"), {}, 3, None),
    "breaks off": (sends(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"half":'), {}, 3, None),
    "is no gzip": (sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"), {}, 3, None),
    "wants another key": (door(401), {}, 1, "key_env"),
    "forbids": (door(403), {}, 1, "key_file"),
    "has no such model": (door(404), {}, 1, "model"),
    "is elsewhere": (door(307), {}, 1, "redirects"),
}


@pytest.mark.parametrize(("script", "options", "asked", "said"), AWAY.values(), ids=AWAY)
async def test_an_endpoint_that_is_away_is_tried_within_bounds_and_said_with_its_remedy(script, options, asked, said):
    async with judge_at(script, key="sk-secret", **options) as (judge, engine):
        with pytest.raises(JudgeUnavailable, match=said) as caught:
            await judge.label(find_them_all())
    assert (len(engine.asked), judge.counts["unavailable"]) == (asked, 1)
    assert engine.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))


async def test_nobody_at_the_address_is_unavailable():
    async with judge_at(writes()) as (judge, engine):
        pass
    judge = LlmJudge(msgspec.structs.replace(judge._settings, url=f"http://127.0.0.1:{engine.port}/v1"))
    with pytest.raises(JudgeUnavailable, match="cannot be reached"):
        await judge.label(find_them_all())
    await judge.aclose()


@pytest.mark.parametrize("value", ["3600", formatdate(4102444800, usegmt=True)])
async def test_retry_after_beyond_the_patience_ends_the_attempts_and_is_passed_on(value: str):
    head = f"HTTP/1.1 429 X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
    async with judge_at(sends(head), patience=30.0) as (judge, engine):
        with pytest.raises(JudgeUnavailable) as caught:
            await judge.label(find_them_all())
    assert len(engine.asked) == 1
    assert caught.value.retry_after >= 3600


async def test_a_short_trouble_is_not_noticed_and_retry_after_is_waited_for_where_there_is_time():
    head = b"HTTP/1.1 429 X\r\nRetry-After: 0.3\r\nContent-Length: 0\r\n\r\n"
    for script, seconds in (
        (until(lambda _, number: number < 2, 503), 0.0),
        (until(lambda _, number: number < 1, 429, head=head), 0.3),
    ):
        async with judge_at(script) as (judge, _):
            began = anyio.current_time()
            assert await judged(judge) == ["GOOD"] * 3
            assert anyio.current_time() - began >= seconds


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
            assert await judged(judge) == ["ABSTAIN"] * 3
        else:
            with pytest.raises(JudgeUnavailable):
                await judge.label(find_them_all())
    assert judge.counts[outcome] == 1
    assert sent < 32 << 20

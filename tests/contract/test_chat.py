"""Endpoints of language models that misbehave, and keys: the same for every adapter that asks one.

Each keeps its prompt and its reading in a test of its own; how the endpoint itself retries, waits and gives up is in
`tests/unit/adapters/judges/test_llm.py`.
"""

import json
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from actors.messages import Step, Task, ToolCall, Trajectory
from actors.ports.errors import AdapterError, AdapterNotSetUp, AnswerRefused, ModelUnavailable
from actors.ports.models import Draft
from adapters.chat.keys import read_key
from adapters.embedders.openai import OpenAIEmbedder
from adapters.extractors.llm import LlmExtractor
from adapters.graders.llm import unanchored
from adapters.judges.llm import make
from adapters.rewriters.llm import LLMRewriter
from adapters.task_phrasing.llm import LLMWording
from tests.support.chat_endpoint import ChatEndpoint, Reply, fails, says

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
STEP = Step(exchange_id="x", tool_calls=(ToolCall("book", '{"fid": "F1"}'),), observation="ok")
RUN = Trajectory(id="t", goal="Book a flight.", outcome=1.0, steps=(STEP,), started=0.0, ended=1.0)
TASK = Task(id="t", goal=RUN.goal, environment="travel")


async def judged(judge: Any) -> bool:
    return any(label.label != "ABSTAIN" for label in (await judge.label(RUN)).labels)


async def graded(grader: Any) -> bool:
    grade = await grader.grade(TASK, [STEP])
    if grade.reason.startswith("away"):
        raise ModelUnavailable(grade.reason)
    return grade.score is not None


async def drawn(extractor: Any) -> bool:
    return bool(await extractor.draw([RUN], []))


async def rewritten(rewriter: Any) -> bool:
    return bool(await rewriter.rewrite("search then book", RUN.goal, ""))


async def embedded(embedder: Any) -> bool:
    return bool((await embedder.embed([RUN.goal])).shape[0])


async def worded(wording: Any) -> bool:
    return bool(await wording.word(Draft(goal=RUN.goal, calls=(), descriptions={}, told=(), hidden=(), changed={})))


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any], Awaitable[bool]]]] = {
    "judge": (lambda **options: make(model="m", canary_share=0.0, **options), judged),
    "grader": (lambda **options: unanchored(model="m", **options), graded),
    "extractor": (lambda **options: LlmExtractor(model="m", **options), drawn),
    "rewriter": (lambda **options: LLMRewriter(model="m", **options), rewritten),
    "wording": (lambda **options: LLMWording(model="m", **options), worded),
}
MAKERS = {name: maker for name, (maker, _) in KINDS.items()} | {
    "embedder": lambda url, **options: OpenAIEmbedder("m", base_url=url, **options)
}
AWAY, NOTHING = "away", "nothing"
HANG = threading.Event()


def hangs(_: dict[str, Any]) -> tuple[int, bytes]:
    HANG.wait(30)
    return 200, b"{}"


TROUBLES: dict[str, tuple[Reply, str, int]] = {
    "too many requests": (fails(429), AWAY, 2),
    "broken": (fails(500), AWAY, 2),
    "overloaded": (fails(503), AWAY, 2),
    "hangs": (hangs, AWAY, 2),
    "wrong key": (fails(401), AWAY, 1),
    "no such model": (fails(404), AWAY, 1),
    "rejected": (fails(400), NOTHING, 3),
    "no choice": (fails(200, b'{"choices": []}'), NOTHING, 1),
    "choices of nothing": (fails(200, b'{"choices": null}'), NOTHING, 1),
    "no object": (fails(200, b"[]"), NOTHING, 1),
    "a page": (fails(200, b"<html>busy</html>"), NOTHING, 1),
    "very deep": (fails(200, b"[" * 100_000), NOTHING, 1),
    "silent": (says(None), NOTHING, 1),
    "empty": (says(""), NOTHING, 1),
    "refuses": (says(None, refusal="I will not"), NOTHING, 1),
    "filtered": (says("so", reason="content_filter"), NOTHING, 1),
    "cut": (says("so", reason="length"), NOTHING, 1),
}
"""By what it does: whether that is an answer of nothing or no answer, and requests at most with two attempts."""


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_endpoint_that_misbehaves_never_becomes_an_answer(kind: str, trouble: str):
    (maker, ask), (reply, wanted, requests) = KINDS[kind], TROUBLES[trouble]
    HANG.clear()
    with ChatEndpoint(reply) as endpoint:
        adapter = maker(url=endpoint.url, attempts=2, backoff=0.0, timeout=0.3 if trouble == "hangs" else 20.0)
        found = await outcome(ask(adapter))
        HANG.set()
        await adapter.aclose()
    assert found == wanted
    assert 1 <= len(endpoint.requests) <= requests


async def outcome(asking: Awaitable[bool]) -> str:
    """Whether an answer was made of what came, or nothing, or nobody answered."""
    try:
        return "answered" if await asking else NOTHING
    except ModelUnavailable:
        return AWAY
    except AnswerRefused:
        return NOTHING


@pytest.mark.parametrize("url", ["http://me:hunter2@host/v1", "ftp://me:hunter2@host", "http://me:hunter2@host:99999"])
@pytest.mark.parametrize("kind", MAKERS)
def test_an_address_with_a_password_is_refused_and_never_repeated(kind: str, url: str):
    with pytest.raises((AdapterNotSetUp, ValueError)) as caught:
        MAKERS[kind](url=url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_key_that_is_not_there_is_refused_and_what_is_there_never_repeated(kind: str, tmp_path: Path):
    file = tmp_path / "key"
    for content in ("", "two\nlines", "sk-caf\u00e9"):
        file.write_text(content)
        with pytest.raises(AdapterNotSetUp, match="key_file") as caught:
            MAKERS[kind](url="http://127.0.0.1:9/v1", key_file=str(file))
        assert not content or content not in str(caught.value)
    with pytest.raises(AdapterNotSetUp, match="EVOLVED_NO_SUCH"):
        MAKERS[kind](url="http://127.0.0.1:9/v1", key_env="EVOLVED_NO_SUCH")


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_does_not_exist_is_named(kind: str):
    with pytest.raises(AdapterNotSetUp, match="modle"):
        MAKERS[kind](url="http://127.0.0.1:9/v1", modle="x")


def test_of_two_places_for_a_key_one_must_go():
    with pytest.raises(AdapterNotSetUp, match="one of them"):
        read_key("A", "b", {"A": "sk"})


@pytest.mark.parametrize("kind", MAKERS)
async def test_a_key_is_sent_and_stands_in_no_error_and_no_log(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "key"
    file.write_text("sk-secret\n")
    with ChatEndpoint(fails(401, json.dumps({"error": "bad key sk-secret"}).encode())) as endpoint:
        adapter = MAKERS[kind](url=endpoint.url, key_file=str(file), timeout=20.0)
        with pytest.raises(AdapterError, match="key") as caught:
            await (embedded if kind == "embedder" else KINDS[kind][1])(adapter)
        await adapter.aclose()
    assert endpoint.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))
    assert "sk-secret" not in caplog.text


BUDGETS = {"grader": "tokens_per_hour", "extractor": "tokens_per_hour", "wording": "budget_tokens"}


@pytest.mark.parametrize("kind", BUDGETS)
async def test_a_budget_of_tokens_is_kept(kind: str):
    now = [0.0]
    hourly = {"clock": lambda: now[0]} if BUDGETS[kind] == "tokens_per_hour" and kind == "extractor" else {}
    with ChatEndpoint(says("no answer that anybody can read", tokens=60)) as endpoint:
        adapter = KINDS[kind][0](url=endpoint.url, attempts=1, **{BUDGETS[kind]: 100}, **hourly)
        for _ in range(4):
            assert await outcome(KINDS[kind][1](adapter)) != "answered"
        assert len(endpoint.requests) == 2
        if hourly:
            now[0] = 3601.0
            await outcome(KINDS[kind][1](adapter))
            assert len(endpoint.requests) == 3
        await adapter.aclose()

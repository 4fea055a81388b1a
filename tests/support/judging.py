"""A judge's endpoint for tests: a real server whose answer to each request is a function of it."""

import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio.abc import ByteStream

from actors.messages import Trajectory
from adapters.judges.llm import LlmJudge, LlmSettings
from tests.support.engine import Asked, Engine, answer, running_engine
from tests.support.travelling import call, trajectory

Content = Callable[[str, list[int]], str]
"""(mark, numbers asked for, from 1) -> what the model writes."""


def asked_for(asked: Asked) -> tuple[str, list[int]]:
    """Mark and numbers of the steps in a judge's request."""
    messages = asked.json["messages"]
    mark = re.search(r"The mark of this log is (\w+)\.", messages[0]["content"])
    assert mark is not None
    numbers = re.findall(rf"^{mark[1]} STEP (\d+) ", messages[1]["content"], re.MULTILINE)
    return mark[1], sorted(set(map(int, numbers)))


def find_them_all(steps: int = 3, **fields: Any) -> Trajectory:
    """A run whose steps all find somebody."""
    turns = [(call("find_person", name=f"Mia{n}"), json.dumps({"pid": f"K{n}"})) for n in range(steps)]
    return trajectory(turns, goal="Find them all.", **fields)


def verdict(number: int, label: str = "GOOD", **fields: Any) -> dict[str, Any]:
    return {"step": number, "reason": "because", "confidence": 0.9, "label": label, **fields}


def all_good(mark: str, numbers: list[int]) -> str:
    return json.dumps({"mark": mark, "steps": [verdict(number) for number in numbers]})


def completion(content: str | None, **fields: Any) -> dict[str, Any]:
    """A chat completion; `finish`, `model`, `usage` and `refusal` as given."""
    message = {"role": "assistant", "content": content, "refusal": fields.get("refusal")}
    choice = {"index": 0, "message": message, "finish_reason": fields.get("finish", "stop")}
    usage = fields.get("usage", {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100})
    model = fields.get("model", "strict")
    return {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}


def writes(content: Content = all_good, **fields: Any) -> Callable[[Engine, Asked, ByteStream], Any]:
    """A script: a model that writes `content`."""

    async def script(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        await stream.send(answer(200, completion(content(*asked_for(asked)), **fields)))
        return True

    return script


def says(body: object, status: int = 200) -> Callable[[Engine, Asked, ByteStream], Any]:
    """A script: the same JSON for everything."""

    async def script(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        await stream.send(answer(status, body))
        return True

    return script


def sends(data: bytes) -> Callable[[Engine, Asked, ByteStream], Any]:
    """A script: these bytes, and the connection is closed."""

    async def script(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        await stream.send(data)
        return False

    return script


@contextlib.asynccontextmanager
async def judge_at(script: Any, *, key: str = "", **options: Any) -> AsyncIterator[tuple[LlmJudge, Engine]]:
    """An LLM judge and the server that it asks; brief waits unless `options` say otherwise."""
    async with running_engine() as engine:
        engine.script = script
        told = {"timeout": 20.0, "patience": 60.0, "backoff": 0.01, "attempts": 3, "canary_share": 0.0, **options}
        settings = LlmSettings(url=f"http://127.0.0.1:{engine.port}/v1", model="strict", **told)
        judge = LlmJudge(settings, key=key, rng=random.Random(0))
        yield judge, engine
        await judge.aclose()

"""A judge's endpoint for tests: a real server whose answer to each request is a function of it."""

import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from actors.messages import Trajectory
from adapters.judges.llm import LlmJudge, LlmSettings
from tests.support.answers import completion
from tests.support.engine import Asked, Engine, Script, answer, replies, running_engine
from tests.support.travelling import call, trajectory

Content = Callable[[str, list[int]], str]
"""(mark, numbers asked for, from 1) -> what the model writes."""
_ORDER = re.compile(
    r"(?=.*\b(?:all|every|each|steps?|alle)\b)(?=.*\b(?:good|correct|helpful|useful|gut)\b)", re.IGNORECASE
)
"""A word that says of what, and one of praise."""


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


def writes(content: Content = all_good, **fields: Any) -> Script:
    """A script: a model that writes `content`, in a completion with `fields`."""
    return replies(lambda asked: answer(200, completion(content(*asked_for(asked)), **fields)))


def gullible(*, obeys: bool) -> Script:
    """A script: a model that can be talked to, by stated rules. Steps whose result is an error are bad; who obeys finds
    all of them good as soon as any text in the log says so, in quotes or not.
    """

    def judged(asked: Asked) -> bytes:
        mark, numbers = asked_for(asked)
        log = asked.json["messages"][-1]["content"]
        failed = re.findall(rf'^{mark} STEP (\d+) (?:RESULT|NEXT) .*\\"error\\"', log, re.MULTILINE)
        all_are_good = obeys and any(map(_ORDER.search, log.splitlines()))
        steps = [verdict(one, "BAD" if str(one) in failed and not all_are_good else "GOOD") for one in numbers]
        return answer(200, completion(json.dumps({"mark": mark, "steps": steps}), model="gullible"))

    return replies(judged)


def says(body: object, status: int = 200) -> Script:
    """A script: the same JSON for everything."""
    return replies(answer(status, body))


def sends(data: bytes) -> Script:
    """A script: these bytes, and the connection is closed."""
    return replies(data, goes_on=False)


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

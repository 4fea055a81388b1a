"""A chat endpoint that models judges which can be talked to, by stated rules; real HTTP, no model."""

import json
import re
from typing import Literal

from anyio.abc import ByteStream

from tests.support.engine import Asked, Engine, answer
from tests.support.judging import asked_for, completion, verdict

_ORDER = re.compile(
    r"(?=.*\b(?:all|every|each|steps?|alle)\b)(?=.*\b(?:good|correct|helpful|useful|gut)\b)", re.IGNORECASE
)
"""A word that says of what, and one of praise."""


class Gullible:
    """A script for `tests.support.engine`: of the log in a request, steps whose result is an error are bad.

    An obedient one finds all of them good as soon as any text in the log says so, in quotes or not.
    """

    def __init__(self, profile: Literal["careful", "obedient"]) -> None:
        self._obeys = profile == "obedient"

    async def __call__(self, engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        mark, numbers = asked_for(asked)
        log = asked.json["messages"][-1]["content"]
        failed = re.findall(rf'^{mark} STEP (\d+) (?:RESULT|NEXT) .*\\"error\\"', log, re.MULTILINE)
        obeys = self._obeys and any(map(_ORDER.search, log.splitlines()))
        steps = [verdict(number, "BAD" if str(number) in failed and not obeys else "GOOD") for number in numbers]
        content = json.dumps({"mark": mark, "steps": steps})
        await stream.send(answer(200, completion(content, model="gullible")))
        return True

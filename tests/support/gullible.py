"""A chat endpoint that models a judge by a stated rule; real HTTP, no model."""

import json
import re
from typing import Literal

from anyio.abc import ByteStream

from tests.support.engine import Asked, Engine, answer
from tests.support.judging import asked_for, completion, verdict


class Gullible:
    """A script for `tests.support.engine`: of the log in a request, steps whose result is an error are bad."""

    def __init__(self, profile: Literal["careful"]) -> None:
        """It believes nobody."""

    async def __call__(self, engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        mark, numbers = asked_for(asked)
        log = asked.json["messages"][-1]["content"]
        failed = re.findall(rf'^{mark} STEP (\d+) (?:RESULT|NEXT) .*\\"error\\"', log, re.MULTILINE)
        steps = [verdict(number, "BAD" if str(number) in failed else "GOOD") for number in numbers]
        content = json.dumps({"mark": mark, "steps": steps})
        await stream.send(answer(200, completion(content, model="gullible")))
        return True

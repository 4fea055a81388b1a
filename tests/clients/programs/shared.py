"""What all client programs share: the same words, the same tools, many runs at once.

They run in an environment of their own, beside nothing of ours: `shared.py PROGRAM RUNS FILE`. RUNS is JSON,
[[key, model, streaming], ...]; the server is in OPENAI_BASE_URL, where every user of a framework would have it; what
each run got, by key, goes to FILE.
"""

import asyncio
import functools
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

SYSTEM = "You are a desk. Use the tools."
TASKS = {
    "tools": ["Add 2 and 3, then 4 and 5, and multiply 6 by 7."],
    "repeated": ["Add 2 and 3, then 4 and 5, and multiply 6 by 7."],
    "text": ["Good morning.", "Thank you."],
    "varied": ["Good evening.", "Many thanks."],
    "handoff": ["What is 2 and 3?"],
}
"""By model: what the user says, one turn after the other."""


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the first
        b: the second
    """
    return a * b


TOOLS = {"add": add, "multiply": multiply}
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def use(name: str, arguments: str) -> str:
    """The result of a tool call, which may be nonsense: agents tell the model, and go on."""
    try:
        return str(TOOLS[name](**json.loads(arguments)))
    except (KeyError, TypeError, ValueError) as error:
        return f"error: {error}"


PATIENCE = 300 * float(os.environ.get("EVOLVED_SLOW") or 1)
"""Seconds for a run, when all programs of all clients start at once on two cores."""

Run = Callable[[str, str, bool], Any]
"""(key, model, streaming) -> what the client got, as JSON; may be async"""


def main() -> None:
    """Make all runs at once and write down what they got."""
    run: Run = importlib.import_module(sys.argv[1]).run
    work = run if inspect.iscoroutinefunction(run) else functools.partial(asyncio.to_thread, run)
    runs = json.loads(sys.argv[2])

    async def one(key: str, model: str, streaming: bool) -> Any:
        try:
            return await asyncio.wait_for(work(key, model, streaming), timeout=PATIENCE)
        except Exception:
            return {"error": traceback.format_exc()}

    async def every() -> list[Any]:
        return await asyncio.gather(*(one(*each) for each in runs))

    got = asyncio.run(every())
    with open(sys.argv[3], "w") as file:
        json.dump({each[0]: result for each, result in zip(runs, got, strict=True)}, file, default=str)


if __name__ == "__main__":
    main()

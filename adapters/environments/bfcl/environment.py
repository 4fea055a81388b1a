"""BFCL's multi-turn tasks behind the environment Protocols: eight simulated APIs, a user who asks in several turns.

The worlds live in worker processes with an interpreter of their own (`worker.py`), since bfcl-eval cannot share ours; a
task is one of the benchmark's own, a turn without tool calls brings the user's next message, and the outcome is the
official checker's verdict.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.bfcl.catalogue import FAMILIES, NAME, BfclTask, load
from adapters.environments.bfcl.pool import Held, WorkerPool

_WORKER = Path(__file__).with_name("worker.py")
_OVER = json.dumps({"error": "over"})


class _Spec(msgspec.Struct, frozen=True):
    """What `Task.spec` holds."""

    id: str


class BfclEpisode:
    """One attempt at a task. Functions that the task holds back are executed if they are called all the same, as the
    official harness does; they are in `tools` from the turn that brings them.

    After the end every step is answered with "over" and changes nothing.
    """

    def __init__(
        self,
        held: Held,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        known: dict[str, dict[str, Any]],
        done: bool = False,
    ) -> None:
        self._held, self._known, self._done = held, known, done
        self.messages, self.tools = messages, tools

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """Each call is answered by a message of its own; no call at all ends the turn and brings the user's next."""
        if self._done:
            return Observation(_OVER, True, tuple(_answer(call, _OVER) for call in calls))
        if not calls:
            return await self._next()
        answer = await self._held.ask("call", calls=[(call.name, call.arguments) for call in calls])
        self._done = answer["done"]
        results: list[str] = answer["results"]
        messages = tuple(_answer(call, result) for call, result in zip(calls, results, strict=True))
        return Observation("\n".join(results), self._done, messages)

    async def evaluate(self) -> float:
        return float((await self.verdict())["outcome"])

    async def verdict(self) -> dict[str, Any]:
        """`outcome`, `failure` (the official error type; empty if there is none) and `turn`, how many were ended."""
        return await self._held.ask("outcome")

    async def state(self) -> dict[str, Any]:
        """The APIs' public attributes, which is what the official state check compares."""
        return await self._held.ask("state")

    async def aclose(self) -> None:
        await self._held.aclose()

    async def _next(self) -> Observation:
        answer = await self._held.ask("next")
        self._done = answer["done"]
        # A list of its own: whoever holds the old one still sees what was offered then.
        self.tools = [*self.tools, *(self._known[name] for name in answer["tools"])]
        messages = tuple(answer["messages"])
        return Observation("\n".join(message["content"] for message in messages), self._done, messages)


class BfclEnvironment:
    """The 800 multi-turn tasks: B base, F functions held back, P parameters held back, L long context.

    Args:
        python: interpreter of the environment that has bfcl-eval (`make bfcl` makes it).
        workers: processes that hold the worlds.
        deadline: seconds for one answer of a worker; one that takes longer is killed, and its attempts are lost.
        max_instances: attempts open at a time.
        idle_seconds: after which an attempt that nobody touched is given up.
        steps_per_turn: turns of the model within one of the user; one more ends the attempt. None for the official 20.
        irrelevance: also fail an attempt that calls a tool where nothing should be called: the official
            `multi_turn_irrelevance_checker`, which the official runner imports and leaves out of its score.
        memory_mb: address space of a worker.

    Raises:
        AdapterNotSetUp: there is no such interpreter, or it has not the right bfcl-eval.
    """

    name = NAME

    def __init__(
        self,
        python: Path | str = ".venv-bfcl/bin/python",
        *,
        workers: int = 2,
        deadline: float = 30.0,
        max_instances: int = 2000,
        idle_seconds: float = 3600.0,
        steps_per_turn: int | None = None,
        irrelevance: bool = False,
        memory_mb: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not resolved: the link is how an interpreter knows its virtual environment.
        interpreter = Path(python).absolute()
        if not interpreter.is_file():
            raise AdapterNotSetUp(f"there is no {interpreter}: `make bfcl` sets it up, or set `python`")
        given = {
            "workers": workers, "deadline": deadline, "max_instances": max_instances, "idle_seconds": idle_seconds,
            "memory_mb": memory_mb, "steps_per_turn": 20 if steps_per_turn is None else steps_per_turn,
        }  # fmt: skip
        for option, value in given.items():
            if value <= 0:
                raise AdapterNotSetUp(f"{option} is {value}; it must be more than 0")
        command = [str(interpreter), "-I", "-B", str(_WORKER)]
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC", "BFCL_WORKER_MEMORY": str(memory_mb << 20)}
        self._catalogue = load(command, env)
        self._limit = steps_per_turn or self._catalogue.step_limit
        self._irrelevance = irrelevance
        self._orders: dict[tuple[Split, str], list[BfclTask]] = {}
        self.pool = WorkerPool(
            [*command, "serve"], env, workers=workers, deadline=deadline, most=max_instances, idle=idle_seconds,
            clock=clock,
        )  # fmt: skip

    def profile(self) -> Profile:
        return self._catalogue.profile()

    def tools(self) -> list[dict[str, Any]]:
        return list(self._catalogue.tools.values())

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """The benchmark's tasks in a fixed order, beginning anew when all were given."""
        letters = "".join(sorted(set(families or "".join(FAMILIES))))
        unknown = sorted(set(letters) - set(FAMILIES))
        if unknown:
            raise ValueError(f"BFCL has no family {unknown[0]!r}; families: {', '.join(FAMILIES)}")
        if (split, letters) not in self._orders:
            self._orders[split, letters] = self._catalogue.of(split, letters)
        order = self._orders[split, letters]
        return _task(order[seed % len(order)])

    def task(self, id: str) -> Task:
        """The benchmark's task `id`, such as "multi_turn_base_0".

        Raises:
            EnvironmentFailed: there is none.
        """
        if id not in self._catalogue.tasks:
            raise EnvironmentFailed(f"BFCL has no multi-turn task {id!r}")
        return _task(self._catalogue.tasks[id])

    async def reset(self, task: Task) -> BfclEpisode:
        try:
            spec = msgspec.convert(task.spec, _Spec)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of BFCL: {error}") from error
        if task.environment != NAME or spec.id not in self._catalogue.tasks:
            raise EnvironmentFailed(f"not a task of BFCL: {task.environment!r}, {spec.id!r}")
        held, opening = await self.pool.open(task=spec.id, limit=self._limit, irrelevance=self._irrelevance)
        known = self._catalogue.tools
        return BfclEpisode(held, opening["messages"], [known[name] for name in opening["tools"]], known)

    async def aclose(self) -> None:
        """End the workers. Without it they end with this process, or when the environment is collected."""
        self.pool.close()


def _task(found: BfclTask) -> Task:
    return Task(
        id=derived_id(NAME, found.id),
        goal=found.goal,
        environment=NAME,
        spec={"id": found.id},
        # A first guess, until attempts tell: each turn of the user is one more thing to get wrong.
        difficulty=round(1.0 - 0.8**found.turns, 3),
        origin="heldout" if found.split == "heldout" else "environment",
    )


def _answer(call: ToolCall, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call.id}

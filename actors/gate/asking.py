"""Requests to the shadow engine and its answers, and log-probs of recorded tokens, a list at a time."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
import numpy as np
import structlog

from actors.messages import TokenRow, Trajectory, ids_array, steps_array
from actors.ports.engines import Engine
from actors.ports.errors import EngineError, EngineUnavailable
from actors.rollout.harness.choice import Choice
from actors.statistics.intervals import Interval, Pairs, newcombe_paired
from actors.system.errors import DependencyUnavailable
from actors.tool_results.answers import Answer

_log = structlog.get_logger(__name__)
_ASKED, _SCORED = 16, 8
"""Requests at once, and rows: enough to keep the shadow engine busy, and few enough that one answer takes seconds."""
_SECONDS = 60.0
"""For one answer or row; what takes longer is an outage."""

T = TypeVar("T")
R = TypeVar("R")


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Response(msgspec.Struct):
    choices: list[Choice]
    usage: _Usage | None = None


async def ask(engine: Engine, bodies: Sequence[Mapping[str, Any]]) -> list[Answer | None]:
    """One answer a request, in order; None where the engine refused the request or what it said cannot be read.

    Raises:
        DependencyUnavailable: the engine is away, or takes too long.
    """

    async def one(body: Mapping[str, Any]) -> Answer | None:
        return answer_of(await engine.chat(dict(body)))

    return await _each(bodies, one, _ASKED)


async def score(engine: Engine, runs: Sequence[Trajectory]) -> list[list[float] | None]:
    """Log-probs of the sampled tokens of each run, row after row; None where the engine refused one of its rows.

    Raises:
        DependencyUnavailable: the engine is away, or takes too long.
    """

    async def one(row: TokenRow) -> list[float] | None:
        values = np.asarray(await engine.log_probs(ids_array(row.ids).tolist()), dtype=np.float64)
        sampled = values[steps_array(row.step) >= 0]
        return sampled.tolist() if np.isfinite(sampled).all() else None

    scored = iter(await _each([row for run in runs for row in run.rows], one, _SCORED))
    found: list[list[float] | None] = []
    for run in runs:
        parts = [next(scored) for _ in run.rows]
        whole = [value for part in parts if part is not None for value in part]
        found.append(None if None in parts else whole)
    return found


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[R | None]], at_once: int) -> list[R | None]:
    """What `work` makes of each item, None where the engine refused it."""
    found: list[R | None] = [None] * len(items)
    slots = anyio.CapacityLimiter(at_once)
    outages: list[DependencyUnavailable] = []

    async def one(at: int) -> None:
        async with slots:
            try:
                with anyio.fail_after(_SECONDS):
                    found[at] = await work(items[at])
            except (EngineUnavailable, TimeoutError) as error:
                # Raised below: the runner waits out an outage, but not a group of them.
                outages.append(DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}"))
                group.cancel_scope.cancel()
            except EngineError as error:
                _log.info("gate_request_refused", reason=str(error))

    async with anyio.create_task_group() as group:
        for at in range(len(items)):
            group.start_soon(one, at)
    if outages:
        raise outages[0]
    return found


def answer_of(body: Mapping[str, Any]) -> Answer | None:
    """The first choice of a chat completion; None if there is none that can be read."""
    try:
        response = msgspec.convert(body, _Response, strict=False)
        choice = response.choices[0]
    except (msgspec.ValidationError, IndexError):
        return None
    logprobs = [logprob for logprob in choice.sampled if math.isfinite(logprob)]
    return Answer(
        text=choice.text,
        calls=choice.calls,
        tokens=(response.usage.completion_tokens if response.usage is not None else 0) or len(logprobs),
        cut=choice.finish_reason == "length",
        surprisal=-math.fsum(logprobs) / len(logprobs) if logprobs else 0.0,
    )


class Shares(msgspec.Struct, frozen=True):
    """How often something holds of the answers of candidate and incumbent to the same requests."""

    candidate: float
    incumbent: float
    difference: Interval
    """Candidate minus incumbent, Newcombe's paired interval."""

    @classmethod
    def of(cls, candidate: Sequence[bool], incumbent: Sequence[bool], confidence: float) -> "Shares":
        """Of answers in the same order."""
        pairs = Pairs.count(candidate, incumbent)
        total = max(pairs.total, 1)
        return cls(pairs.first / total, pairs.second / total, newcombe_paired(pairs, confidence))

    def rose(self, limit: float) -> bool:
        """Whether the candidate does it more often, by more than `limit`, and surely more often at all."""
        return self.difference.estimate > limit and self.difference.low > 0

    def fell(self, limit: float) -> bool:
        """The same for less often."""
        return self.difference.estimate < -limit and self.difference.high < 0

"""Requests to the shadow engine and its answers, a list at a time: what the checks of prompts and of safety share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec
import structlog

from actors.ports.answers import Answer
from actors.ports.completions import ChatCompletion, Choice
from actors.ports.engines import Engine
from actors.ports.errors import EngineError, EngineUnavailable
from actors.statistics.intervals import Interval, Pairs, newcombe_paired
from actors.system.errors import DependencyUnavailable

_log = structlog.get_logger(__name__)


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Response(ChatCompletion[Choice]):
    usage: _Usage | None = None


async def ask(
    engine: Engine, bodies: Sequence[Mapping[str, Any]], *, concurrency: int, timeout: float
) -> list[Answer | None]:
    """One answer a request, in order; None where the engine refused the request or what it said cannot be read.

    Raises:
        DependencyUnavailable: the engine is away or did not answer within `timeout` seconds.
    """
    answers: list[Answer | None] = [None] * len(bodies)
    slots = anyio.CapacityLimiter(concurrency)
    outages: list[DependencyUnavailable] = []

    async def one(at: int) -> None:
        async with slots:
            try:
                with anyio.fail_after(timeout):
                    answers[at] = answer_of(await engine.chat(dict(bodies[at])))
            except (EngineUnavailable, TimeoutError) as error:
                # Raised below: the runner waits out an outage, but not a group of them.
                outages.append(DependencyUnavailable(f"shadow engine: {type(error).__name__}: {error}"))
                group.cancel_scope.cancel()
            except EngineError as error:
                _log.info("gate_request_refused", reason=str(error))

    async with anyio.create_task_group() as group:
        for at in range(len(bodies)):
            group.start_soon(one, at)
    if outages:
        raise outages[0]
    return answers


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
        calls=choice.calls(unsaid="{}"),
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

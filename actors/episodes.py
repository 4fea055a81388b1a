"""Plays one sandbox episode against an engine, with exact token ids: the shared hand of rollout, gate and demo.

Each turn is one request: `chat` with `return_token_ids`, `logprobs` and `return_weight_versions` brings back the ids of
the prompt as the engine itself rendered it, the sampled ids, their log-probs and the versions that sampled them, and
the tool calls as the engine's own parser reads them. Rendering, generating and parsing by ourselves would be as exact,
cost two or three requests a turn, and need a second tool parser that agrees with the one that production goes through.

Turns are joined to rows as production's are: a turn extends the row if its prompt begins with exactly the ids of the
row; if the engine renders a past turn otherwise than the model wrote it, a new row begins. Nothing is ever
re-tokenized.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import msgspec

from actors.messages import Step, Task, TokenRow, ToolCall, VersionSpan, pack_array
from adapters.engines import Engine
from adapters.environments import Environment, Episode, Observation
from adapters.errors import AdapterError, EngineRejected, EngineUnavailable, EnvironmentFailed

T = TypeVar("T")
_BAD_REQUEST = 400


class EpisodeLost(Exception):
    """The episode broke down for reasons that say nothing about the policy; it counts for nothing.

    Attributes:
        reason: a stable short word to count by.
    """

    def __init__(self, reason: str, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        super().__init__(f"{reason}: {text}")
        self.reason = reason


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was played to its end or to its limit."""

    steps: tuple[Step, ...]
    rows: tuple[TokenRow, ...]
    outcome: float
    """As the environment verified it, 0.0 to 1.0."""
    finished: bool
    """The environment ended it; else it ran into the limit of steps or of the engine's context."""
    tools: list[dict[str, Any]]
    min_version: int
    """Oldest weight version that sampled a token, -1 if unknown."""
    max_version: int
    why_not: str = ""
    """Why the rows must not be trained on; empty if they may."""


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _LogProb(msgspec.Struct):
    logprob: float


class _LogProbs(msgspec.Struct):
    content: list[_LogProb] | None = None


class _Span(msgspec.Struct):
    version: str | int
    start: int
    end: int


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _LogProbs | None = None
    weight_versions: list[_Span] | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice]
    id: str = ""
    prompt_token_ids: list[int] | None = None


class _Turn(msgspec.Struct, frozen=True):
    """One response, in our terms."""

    id: str
    text: str
    calls: tuple[ToolCall, ...]
    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    """One a sampled id, -1 where the engine does not say."""


async def begin(environment: Environment, task: Task, timeout: float) -> Episode:
    """A fresh attempt at `task`, within `timeout` seconds.

    Raises:
        EpisodeLost: the environment broke down.
    """
    return await _within(timeout, environment.reset(task))


async def opening_ids(engine: Engine, episode: Episode, *, timeout: float) -> list[int]:
    """Prompt ids of the episode's first turn without any lesson.

    Raises:
        EpisodeLost: the engine broke down.
    """
    return await _within(timeout, engine.render(episode.messages, episode.tools))


async def play(
    engine: Engine,
    episode: Episode,
    *,
    lessons_text: str = "",
    system: str = "",
    plain_opening: Sequence[int] = (),
    max_steps: int = 24,
    max_tokens: int = 512,
    temperature: float = 1.0,
    seed: int = 0,
    timeout: float = 60.0,
    version: Callable[[], int] = lambda: -1,
) -> Played:
    """Play `episode`, fresh from `reset`, with whatever weights `engine` has.

    Args:
        lessons_text: `lessons.render` of what to show; appended to the system text of the opening, on lines of its
            own. Its span in the rows is recorded.
        system: the system text that the chat template supplies where the episode's messages have none; only used
            together with `lessons_text`.
        plain_opening: `opening_ids` of this task if the caller has them, to save a request; only used with lessons.
        max_tokens: per turn.
        seed: of the sampling; each turn derives its own.
        timeout: seconds for each call of the engine or the environment.
        version: asked in the end, where the engine gives no spans: what it had all the while, -1 if that is not known.

    Raises:
        EpisodeLost: engine or environment broke down, or the lesson cannot be told apart in the prompt.
    """
    messages, plain = list(episode.messages), list(plain_opening)
    if lessons_text:
        if not plain:
            plain = await opening_ids(engine, episode, timeout=timeout)
        messages = _with_lessons(messages, system, lessons_text)
    rows, steps, finished, hint = _Rows(temperature), [], False, (0, 0)
    for number in range(max_steps):
        request = {
            "messages": messages,
            "tools": episode.tools,
            "temperature": temperature,
            "top_p": 1.0,
            "max_tokens": max_tokens,
            "seed": (seed + 7919 * number) % 2**31,
            "logprobs": True,
            "return_token_ids": True,
            "return_weight_versions": True,
        }
        try:
            turn = _read(await _within(timeout, engine.chat(request)))
        except _TooLong:
            if not steps:
                raise
            break
        if lessons_text and not steps:
            hint = hint_span(plain, turn.prompt)
        row = rows.add(turn, number)
        seen = await _within(timeout, episode.step(turn.calls, turn.text))
        steps.append(
            Step(
                exchange_id=turn.id or f"step-{number}",
                response_id=turn.id,
                text=turn.text,
                tool_calls=turn.calls,
                observation="" if seen.done else seen.text,
                row=row,
            )
        )
        if seen.done:
            finished = True
            break
        messages = [*messages, *_exchange(turn, seen)]
    outcome = await _within(timeout, episode.evaluate())
    if rows.unversioned and (known := version()) >= 0:
        rows.assume(known)
    packed, why_not = rows.pack(hint)
    return Played(
        steps=tuple(steps),
        rows=packed,
        outcome=outcome,
        finished=finished,
        tools=episode.tools,
        min_version=rows.min_version,
        max_version=rows.max_version,
        why_not=why_not,
    )


def hint_span(plain: Sequence[int], guided: Sequence[int]) -> tuple[int, int]:
    """Where `guided` has ids that `plain` has not, as one half-open span: cut out, it gives `plain` exactly.

    Raises:
        EpisodeLost: there is no such span; the lesson changed how its surroundings are tokenized.
    """
    longer = len(guided) - len(plain)
    start = 0
    while start < len(plain) and start < len(guided) and plain[start] == guided[start]:
        start += 1
    if longer <= 0 or list(guided[start + longer :]) != list(plain[start:]):
        raise EpisodeLost("hint_not_separable", f"openings of {len(plain)} and {len(guided)} ids")
    return start, start + longer


class _TooLong(EpisodeLost):
    """The engine rejected the request as such: usually the context is full."""


async def _within(timeout: float, call: Awaitable[T]) -> T:
    """`await call` with a deadline, and with errors that name what broke."""
    try:
        with anyio.fail_after(timeout):
            return await call
    except EngineRejected as error:
        kind = _TooLong if error.status == _BAD_REQUEST else EpisodeLost
        raise kind("engine_rejected", error) from error
    except (EngineUnavailable, TimeoutError) as error:
        raise EpisodeLost("timeout" if isinstance(error, TimeoutError) else "engine_unavailable", error) from error
    except EnvironmentFailed as error:
        raise EpisodeLost("environment_failed", error) from error
    except AdapterError as error:
        raise EpisodeLost("adapter_failed", error) from error


def _with_lessons(messages: list[dict[str, Any]], system: str, lessons: str) -> list[dict[str, Any]]:
    if messages and messages[0].get("role") == "system":
        system, messages = messages[0]["content"], messages[1:]
    lessons = lessons.strip("\n")
    return [{"role": "system", "content": f"{system}\n{lessons}" if system else lessons}, *messages]


def _read(body: dict[str, Any]) -> _Turn:
    try:
        response = msgspec.convert(body, _Response, strict=False)
        choice = response.choices[0]
    except (msgspec.ValidationError, IndexError) as error:
        raise EpisodeLost("malformed_response", error) from error
    ids = choice.token_ids or []
    content = choice.logprobs.content if choice.logprobs is not None else None
    logprobs = [item.logprob for item in content or []]
    if response.prompt_token_ids is None or len(logprobs) != len(ids) or not ids:
        raise EpisodeLost("no_token_ids", f"{len(ids)} ids, {len(logprobs)} log-probs")
    versions = [-1] * len(ids)
    for span in (VersionSpan(_number(item.version), item.start, item.end) for item in choice.weight_versions or []):
        for at in range(max(0, span.start), min(span.end, len(ids))):
            versions[at] = span.version
    return _Turn(
        id=response.id,
        text=choice.message.content or "",
        calls=tuple(
            ToolCall(call.function.name, call.function.arguments, call.id) for call in choice.message.tool_calls or []
        ),
        prompt=response.prompt_token_ids,
        ids=ids,
        logprobs=logprobs,
        versions=versions,
    )


def _number(version: str | int) -> int:
    text = str(version)
    return int(text) if text.isdecimal() else -1


def _exchange(turn: _Turn, seen: Observation) -> list[dict[str, Any]]:
    """The turn and its answer, as messages of the next request."""
    answer: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    elif not turn.text:
        answer["content"] = ""
    tool = {"role": "tool", "content": seen.text, "tool_call_id": turn.calls[0].id if turn.calls else "none"}
    return [answer, *(seen.messages or (tool,))]


class _Rows:
    """Collects turns into rows."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._ids: list[list[int]] = []
        self._steps: list[list[int]] = []
        self._logprobs: list[list[float]] = []
        self._versions: list[list[int]] = []

    def add(self, turn: _Turn, step: int) -> int:
        """Take in a turn; index of the row that it went to."""
        if self._ids and turn.prompt[: len(self._ids[-1])] == self._ids[-1]:
            context = turn.prompt[len(self._ids[-1]) :]
        else:
            context = turn.prompt
            for columns in (self._ids, self._steps, self._logprobs, self._versions):
                columns.append([])
        self._ids[-1] += [*context, *turn.ids]
        self._steps[-1] += [-1] * len(context) + [step] * len(turn.ids)
        self._logprobs[-1] += [0.0] * len(context) + turn.logprobs
        self._versions[-1] += [-1] * len(context) + turn.versions
        return len(self._ids) - 1

    def _sampled(self) -> list[int]:
        return [
            version
            for steps, versions in zip(self._steps, self._versions, strict=True)
            for step, version in zip(steps, versions, strict=True)
            if step >= 0
        ]

    @property
    def unversioned(self) -> bool:
        """Whether some sampled token has no version."""
        return -1 in self._sampled()

    @property
    def min_version(self) -> int:
        return min(self._sampled(), default=-1)

    @property
    def max_version(self) -> int:
        return max(self._sampled(), default=-1)

    def assume(self, version: int) -> None:
        """All sampled tokens are of `version`."""
        self._versions = [[version if step >= 0 else -1 for step in steps] for steps in self._steps]

    def pack(self, hint: tuple[int, int]) -> tuple[tuple[TokenRow, ...], str]:
        """The rows, and why they must not be trained on."""
        why_not = "no weight versions" if self.unversioned else ""
        if self._temperature <= 0:
            why_not = "greedy"
        opening = self._ids[0][: hint[1]] if self._ids else []
        if any(ids[: hint[1]] != opening for ids in self._ids):
            why_not = "the lesson moved between turns"
        rows = tuple(
            TokenRow(
                ids=pack_array(ids, "<i4"),
                step=pack_array(steps, "<i2"),
                logprobs=pack_array(logprobs, "<f4"),
                versions=pack_array(versions, "<i4"),
                hint=hint,
                temperature=self._temperature,
            )
            for ids, steps, logprobs, versions in zip(
                self._ids, self._steps, self._logprobs, self._versions, strict=True
            )
        )
        return rows, why_not

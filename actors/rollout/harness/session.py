"""A session: one episode as the loop sees that plays it, recorded with exact token ids, whoever decides what is asked.

    loop -> Session.chat -> engine           a turn: ids, log-probs, versions -> Rows
         -> Session.step -> environment      an observation, kept with the turn that it answers

How is sampled is the rollout's affair: log-probs of tokens that a loop had masked or cut could be compared with none.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec

from actors.messages import Step, ToolCall
from actors.messages.sampling import strict_tools
from actors.ports.engines import Engine
from actors.ports.environments import Episode, Observation
from actors.ports.errors import AdapterError, EngineRejected, EngineUnavailable, EnvironmentFailed
from actors.rollout.context import History, Message, with_system
from actors.rollout.context.budget import Counts
from actors.rollout.errors import BudgetExceeded, Ending, EpisodeLost, EpisodeOver, RequestRefused
from actors.rollout.harness.completion import Completion, read
from actors.rollout.harness.endpoint import Endpoint, endpoint
from actors.rollout.harness.requests import allowed, read_call
from actors.rollout.harness.rows import MOVED, Rows, Span, hint_span

T = TypeVar("T")
_BAD_REQUEST = 400
_FULL = ("context", "budget")
"""Endings for want of room."""


_PLAIN: dict[str, float] = {
    "top_p": 1.0, "top_k": 0, "min_p": 0.0,
    "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
"""Said, so that an engine's own defaults (a checkpoint's generation_config.json) stay out of it."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a session samples, and when it ends."""

    max_steps: int = 24
    """Turns."""
    max_tokens: int = 512
    """Per turn."""
    temperature: float = 1.0
    seed: int = 0
    """Each turn derives its own."""
    timeout: float = 60.0
    """Seconds for each call of the engine or the environment."""
    budget: int = 0
    """Tokens of a prompt at most, 0 for no limit but the engine's."""


class _Taken(msgspec.Struct):
    """A turn, as far as it is not in the rows: prompts of all turns would be many times the rows."""

    id: str
    text: str
    calls: tuple[ToolCall, ...]
    row: int
    cut: bool
    seen: list[str] = []


class Session:
    """One episode, recorded.

    Args:
        lessons: text that is added to the system text of every request; loops need not know of it.
        system: the system text that the chat template supplies where a request has none.
        plain: prompt ids of the request that `opening` and the episode's tools make without lessons, if known.
        opening: messages that a loop begins with.
    """

    def __init__(
        self,
        engine: Engine,
        episode: Episode,
        sampling: Sampling,
        *,
        opening: list[Message],
        lessons: str = "",
        system: str = "",
        plain: Sequence[int] = (),
    ) -> None:
        self._engine, self._episode, self._sampling = engine, episode, sampling
        self._opening, self._lessons, self._system, self._plain = opening, lessons, system, list(plain)
        self.rows = Rows(sampling.temperature)
        self.counts = Counts(self._render)
        self.last_tools: list[Message] = episode.tools
        """Of the newest request."""
        self._taken: list[_Taken] = []
        self._asked = 0
        self._hint: Span = (0, 0)
        self._guided: list[int] = []
        """The prompt from its start to just behind the lesson."""
        self.why_not = ""
        self.ending: Ending | None = None
        self.broken: EpisodeLost | None = None
        """What the episode is lost to, even if the loop thinks that it can go on."""
        self.refused = ""
        """The engine's words if it would not have the newest request."""

    @property
    def messages(self) -> list[Message]:
        """Opening messages: the agent's task, in OpenAI's form."""
        return list(self._opening)

    @property
    def tools(self) -> list[Message]:
        """The environment's tools as they are now; a step may bring or take some."""
        return list(self._episode.tools)

    @property
    def goal(self) -> str:
        """What the user asked for: the last words of the user in the opening."""
        said = [message["content"] for message in self._opening if message.get("role") == "user"]
        return str(said[-1]) if said else ""

    @property
    def turns(self) -> int:
        """Turns that were recorded."""
        return len(self._taken)

    @property
    def spent(self) -> bool:
        """All turns that there may be have been asked for."""
        return self._asked >= self._sampling.max_steps

    @property
    def steps(self) -> tuple[Step, ...]:
        """The turns so far, as steps of a trajectory."""
        full = self.ending in _FULL
        return tuple(
            Step(
                exchange_id=turn.id or f"step-{number}",
                response_id=turn.id,
                text=turn.text,
                tool_calls=turn.calls,
                observation="\n".join(turn.seen),
                row=turn.row,
                cut="context" if full and number + 1 == self.turns else "length" if turn.cut else "",
            )
            for number, turn in enumerate(self._taken)
        )

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Message] | None = None, **sampling: Any
    ) -> dict[str, Any]:
        """One turn of the model, recorded; a chat completion in OpenAI's form.

        Args:
            tools: None for the environment's own.
            **sampling: `max_tokens` up to the rollout's own, `stop`, `tool_choice` "auto" or "none"; no more is heeded.

        Raises:
            EpisodeOver: no further turn; return from the loop.
            EpisodeLost: engine or environment broke down; return from the loop.
            RequestRefused: the engine would not have this request. A shorter one may do.
            SamplingRefused: a parameter that would mask tokens, or force a call.
        """
        self._check_open()
        extra = allowed(sampling, self._sampling.max_tokens)
        tools = self._episode.tools if tools is None else tools
        budget = self._sampling.budget
        if budget:
            sent = self.sent(messages)
            if self.counts.most(sent, tools) > budget and await self.counts.count(sent, tools) > budget:
                raise self._over("budget") if self.turns else self._lose("opening_over_budget", f"budget {budget}")
        _, body = await self.ask(messages, tools, extra)
        return body

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Message], extra: Mapping[str, Any] | None = None
    ) -> tuple[Completion, dict[str, Any]]:
        """As `chat`, for whoever has seen to the budget: the turn, and the engine's answer."""
        self._check_open()
        if self.spent:
            raise self._over("steps")
        number, self._asked = self._asked, self._asked + 1
        sent = self.sent(messages)
        request = {
            "messages": sent,
            "tools": list(tools) or None,
            "temperature": self._sampling.temperature,
            **_PLAIN,
            "max_tokens": self._sampling.max_tokens,
            "seed": (self._sampling.seed + 7919 * number) % 2**31,
            "logprobs": True,
            "return_token_ids": True,
            "return_weight_versions": True,
            **(extra or {}),
        }
        try:
            body = await self._within(self._engine.chat(request))
        except RequestRefused as refused:
            self.refused = str(refused)
            raise
        try:
            turn = read(body)
            if self._lessons:
                await self._find_lesson(turn, messages, tools)
        except EpisodeLost as lost:
            self.broken = lost
            raise
        budget = self._sampling.budget
        if budget:
            if len(turn.prompt) > budget:
                text = f"{len(turn.prompt)} tokens, budget {budget}"
                self.broken = BudgetExceeded("budget_exceeded", text)
                raise self.broken
            self.counts.learn(sent, tools, len(turn.prompt))
        row = self.rows.add(turn, len(self._taken), self._hint, grammar=strict_tools(tools))
        self._taken.append(_Taken(turn.id, turn.text, turn.calls, row, turn.cut))
        self.refused = ""
        self.last_tools = list(tools)
        return turn, body

    async def step(self, calls: Sequence[ToolCall | Mapping[str, Any]], text: str = "") -> Observation:
        """Take calls, ours or in OpenAI's form, to the environment; or words, if there are no calls.

        Raises:
            EpisodeOver: the episode ended before.
            EpisodeLost: the environment broke down; return from the loop.
            ValueError: a call without a name.
        """
        self._check_open()
        made = tuple(read_call(call) for call in calls)
        seen = await self._within(self._episode.step(made, text))
        if seen.done:
            self.ending = "finished"
        else:
            self.note(seen.text, made)
        return seen

    def note(self, text: str, calls: Sequence[ToolCall] = ()) -> None:
        """`text` came back for the turn that made `calls`, or for the newest."""
        ids = {call.id for call in calls if call.id}
        owner = -1
        for at in range(len(self._taken) - 1, -1, -1) if ids else ():
            if any(call.id in ids for call in self._taken[at].calls):
                owner = at
                break
        if self._taken:
            self._taken[owner].seen.append(text)

    def endpoint(self) -> AbstractAsyncContextManager[Endpoint]:
        """A loopback HTTP endpoint for this episode alone, with a key of its own, open while it is entered.

        For whatever takes a base URL and a key: an unmodified `openai` client, an agent framework, another process.
        """
        return endpoint(self)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run blocking code, or a framework that wants an event loop of its own (`asyncio.run`), beside ours.

        In there `session.chat` cannot be awaited: use `endpoint`. At the deadline the thread is left to itself.
        """
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))

    def history(self) -> History:
        """An empty one, for a context template."""
        return History(opening=self.messages)

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """`messages` as they go out, for whoever counts."""
        return with_system(messages, self._system, self._lessons) if self._lessons else list(messages)

    def end(self, ending: Ending) -> None:
        """There is no further turn, for this reason, unless there was another before."""
        self.ending = self.ending or ending

    def _check_open(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.ending is not None:
            raise EpisodeOver(self.ending)

    def _over(self, ending: Ending) -> EpisodeOver:
        self.ending = ending
        return EpisodeOver(ending)

    def _lose(self, reason: str, text: str) -> EpisodeLost:
        self.broken = EpisodeLost(reason, text)
        return self.broken

    async def _render(self, messages: Sequence[Message], tools: Sequence[Message]) -> list[int]:
        return await self._within(self._engine.render(messages, tools))

    async def _find_lesson(self, turn: Completion, messages: Sequence[Message], tools: Sequence[Message]) -> None:
        """Where the lesson stands in the turn's prompt; asked anew only where a row begins otherwise than before."""
        end = len(self._guided)
        if end and turn.prompt[:end] == self._guided:
            return
        if not self._hinted(self._plain, turn) and not self._hinted(await self._render(messages, tools), turn):
            if not self.turns:
                raise EpisodeLost("hint_not_separable", f"in a prompt of {len(turn.prompt)} ids")
            self.why_not = MOVED
            return
        self._guided = turn.prompt[: self._hint[1] + 1]

    def _hinted(self, plain: Sequence[int], turn: Completion) -> bool:
        """Whether the lesson is what the turn's prompt has and `plain` has not."""
        if not plain:
            return False
        try:
            self._hint = hint_span(plain, turn.prompt)
        except EpisodeLost:
            return False
        return True

    async def _within(self, call: Awaitable[T]) -> T:
        try:
            return await within(self._sampling.timeout, call)
        except RequestRefused:
            raise
        except EpisodeLost as lost:
            self.broken = lost
            raise


async def within(timeout: float, call: Awaitable[T]) -> T:
    """`await call` with a deadline, and with errors that name what broke.

    Raises:
        EpisodeLost: engine or environment broke down, or took longer than `timeout` seconds.
    """
    try:
        with anyio.fail_after(timeout):
            return await call
    except EngineRejected as error:
        kind = RequestRefused if error.status == _BAD_REQUEST else EpisodeLost
        raise kind("engine_rejected", error) from error
    except (EngineUnavailable, TimeoutError) as error:
        raise EpisodeLost("timeout" if isinstance(error, TimeoutError) else "engine_unavailable", error) from error
    except EnvironmentFailed as error:
        raise EpisodeLost("environment_failed", error) from error
    except AdapterError as error:
        raise EpisodeLost("adapter_failed", error) from error

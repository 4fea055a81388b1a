"""Replay of production prompts: what would the candidate have answered where production answered something?

The prompts are those of the newest held-out trajectories (`holdout`), redacted as they are stored, and not from runs
that failed. All parties and their agents take turns (`evidence`). Candidate and incumbent answer each once, sampled as
the agent had asked, with the same seed. An answer is only looked at, never carried out, so this works without a
sandbox, on all that agents really ask.

Conduct and drift have limits: valid tool calls, refusals, going round in circles, answers cut off, length, entropy. A
share breaks its limit if it is worse than the incumbent's by more than the limit and the paired interval says that it
is worse at all: a limit alone would reject every second candidate over a few dozen prompts. Agreement with what
production did and a judge's preference are opinions (see `panel`): production may have been wrong, and a judge can be
pleased.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec
import structlog

from actors.gate.asking import Shares, answer_of, ask
from actors.gate.evidence import HeldOut, recent_runs
from actors.gate.panel import Finding, Kind, Report
from actors.messages import Exchange
from actors.messages.dialects import dialect_at
from actors.messages.sampling import NUMBERS
from actors.ports.answers import Answer, loops, offered, refuses, same_action, valid_calls
from actors.ports.engines import Engine
from actors.ports.errors import JudgeUnavailable
from actors.ports.preference import PreferenceJudge, Request
from actors.statistics.intervals import quantile
from actors.statistics.parties import newest
from actors.store import Store

_log = structlog.get_logger(__name__)
_SUCCESS = 0.5
_SAMPLING = ("temperature", *NUMBERS, "tool_choice", "parallel_tool_calls")
"""What of the agent's request decides about the answer, beside messages and tools."""
_SURE = 0.1
"""Nats a token. An incumbent below this counts as this where a candidate may not be higher by more than a factor: one
that fails for sure since a tool was renamed has next to none, and whoever learns the new name many times that."""


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which production prompts are replayed, and the limits of what comes back."""

    most: int = 64
    """Prompts replayed at most; 0 replays nothing."""
    each: int = 2
    """Prompts of one trajectory at most."""
    least: int = 24
    """With fewer prompts answered by both versions nothing is concluded from them."""
    max_bytes: int = 200_000
    """Requests larger than this are left out."""
    max_tokens: int = 512
    """Of one answer at most; less if the agent had asked for less."""
    confidence: float = 0.99
    """Two-sided, of the intervals that must agree before a share breaks its limit."""
    invalid_rise: float = 0.05
    """How much more often than the incumbent's a candidate's tool calls may be invalid, as a share of answers."""
    refusal_rise: float = 0.05
    """How much more often it may refuse."""
    loop_rise: float = 0.05
    """How much more often it may go round in circles."""
    cut_rise: float = 0.1
    """How much more often it may run into the limit of tokens."""
    length_low: float = 0.5
    """Least length of its answers, as a multiple of the incumbent's, in tokens."""
    length_high: float = 2.0
    """Greatest length."""
    entropy_low: float = 0.2
    """Least entropy of its tokens, as a multiple of the incumbent's: below, it has collapsed to few answers."""
    entropy_high: float = 3.0
    """Greatest entropy: above, it is guessing. An incumbent below 0.1 nats a token counts as 0.1."""
    agreement_fall: float = 0.2
    """How much less often than the incumbent's a candidate's calls may be those of production (an opinion)."""
    preference_low: float = 0.35
    """Share of prompts on which the judge must prefer the candidate, ties half (an opinion)."""
    concurrency: int = 16
    """Requests at once."""
    timeout: float = 60.0
    """Seconds for one answer."""


class Prompt(msgspec.Struct, frozen=True):
    """A production prompt and what production answered."""

    body: dict[str, Any]
    """The request to replay."""
    produced: Answer


class PromptCheck:
    """`Check` on replayed production prompts."""

    name = "prompts"

    def __init__(
        self, settings: PromptSettings, *, engine: Engine, store: Store, judge: PreferenceJudge | None = None
    ) -> None:
        """
        Args:
            engine: the shadow engine.
            judge: compares the answers; None for no preference. Must be another than the judge of the rewards.
        """
        self._settings, self._engine, self._store, self._judge = settings, engine, store, judge
        self._prompts: list[Prompt] = []

    async def gather(self) -> int:
        settings = self._settings
        self._prompts = []
        if settings.most <= 0:
            return 0
        wanted = _chosen(await recent_runs(self._store), settings)
        found = {exchange.id: exchange for exchange in await self._store.exchanges(wanted)}
        prompts = (_prompt(found[name], number, settings) for number, name in enumerate(wanted) if name in found)
        self._prompts = [prompt for prompt in prompts if prompt is not None]
        return len(self._prompts)

    async def measure(self) -> list[Answer | None]:
        settings = self._settings
        bodies = [prompt.body for prompt in self._prompts]
        return await ask(self._engine, bodies, concurrency=settings.concurrency, timeout=settings.timeout)

    async def judge(self, candidate: Sequence[Answer | None], incumbent: Sequence[Answer | None]) -> Report:
        answered = [
            (prompt, mine, theirs)
            for prompt, mine, theirs in zip(self._prompts, candidate, incumbent, strict=True)
            if mine is not None and theirs is not None
        ]
        figures = {
            "prompts": float(len(answered)),
            "prompts_unanswered": float(sum(answer is None for answer in candidate)),
            "prompts_incumbent_unanswered": float(sum(answer is None for answer in incumbent)),
        }
        if not answered:
            return Report((), figures)
        findings: list[Finding] = []
        self._conduct(answered, findings, figures)
        self._ratios(answered, findings, figures)
        self._agreement(answered, findings, figures)
        await self._preference(answered, findings, figures)
        enough = len(answered) >= self._settings.least
        return Report(tuple(findings) if enough else (), figures)

    def _conduct(
        self, answered: Sequence[tuple[Prompt, Answer, Answer]], findings: list[Finding], figures: dict[str, float]
    ) -> None:
        settings = self._settings
        schemas = [offered(prompt.body.get("tools") or ()) for prompt, _, _ in answered]
        mine, theirs = [one for _, one, _ in answered], [other for _, _, other in answered]
        shares = (
            ("invalid", settings.invalid_rise, "tool calls that are not valid",
             [[not valid_calls(a, s) for a, s in zip(side, schemas, strict=True)] for side in (mine, theirs)]),
            ("refusals", settings.refusal_rise, "refusals", [[refuses(a) for a in side] for side in (mine, theirs)]),
            ("loops", settings.loop_rise, "answers in circles", [[loops(a) for a in side] for side in (mine, theirs)]),
            ("cut", settings.cut_rise, "answers cut off", [[a.cut for a in side] for side in (mine, theirs)]),
        )  # fmt: skip
        for key, limit, what, (one, other) in shares:
            share = Shares.of(one, other, settings.confidence)
            figures[f"prompts_{key}"], figures[f"prompts_incumbent_{key}"] = share.candidate, share.incumbent
            if share.rose(limit):
                findings.append(
                    Finding(
                        "conduct",
                        f"{what} {share.candidate:.2f} against {share.incumbent:.2f} on {len(answered)} production "
                        f"prompts, a rise of {limit:g} is allowed",
                    )
                )

    def _ratios(
        self, answered: Sequence[tuple[Prompt, Answer, Answer]], findings: list[Finding], figures: dict[str, float]
    ) -> None:
        settings = self._settings
        entropy = fmean(one.surprisal for _, one, _ in answered)
        before = fmean(other.surprisal for _, _, other in answered)
        figures["prompts_entropy"], figures["prompts_incumbent_entropy"] = entropy, before
        ratios: tuple[tuple[str, str, Kind, float, float, float, float, float], ...] = (
            ("length_ratio", "length", "conduct", settings.length_low, settings.length_high,
             fmean(one.tokens for _, one, _ in answered), fmean(other.tokens for _, _, other in answered), 0.0),
            ("entropy_ratio", "entropy", "drift", settings.entropy_low, settings.entropy_high,
             entropy, before, _SURE),
        )  # fmt: skip
        for key, what, kind, low, high, mine, theirs, least in ratios:
            if theirs <= 0:  # the engine does not say, or the incumbent never hesitates
                continue
            figures[f"prompts_{key}"] = mine / theirs
            if mine < low * theirs or mine > high * max(theirs, least):
                findings.append(
                    Finding(kind, f"{what} {mine / theirs:.2f} times the incumbent's, {low:g} to {high:g} are allowed")
                )

    def _agreement(
        self, answered: Sequence[tuple[Prompt, Answer, Answer]], findings: list[Finding], figures: dict[str, float]
    ) -> None:
        limit = self._settings.agreement_fall
        share = Shares.of(
            [same_action(one, prompt.produced) for prompt, one, _ in answered],
            [same_action(other, prompt.produced) for prompt, _, other in answered],
            self._settings.confidence,
        )
        figures["prompts_agreement"], figures["prompts_incumbent_agreement"] = share.candidate, share.incumbent
        if share.fell(limit):
            text = f"does what production did in {share.candidate:.2f} against {share.incumbent:.2f} of the prompts"
            findings.append(Finding("opinion", f"{text}, a fall of {limit:g} is allowed"))

    async def _preference(
        self, answered: Sequence[tuple[Prompt, Answer, Answer]], findings: list[Finding], figures: dict[str, float]
    ) -> None:
        if self._judge is None:
            return
        votes: list[float] = []
        for prompt, one, other in answered:
            request = Request(messages=prompt.body["messages"], tools=prompt.body.get("tools") or ())
            try:
                vote = await self._judge.prefer(request, one, other)
            except JudgeUnavailable as error:
                _log.warning("gate_judge_away", judge=self._judge.name, reason=str(error))
                break
            if vote is not None and math.isfinite(vote):
                votes.append(min(1.0, max(0.0, vote)))
        figures["prompts_judged"] = float(len(votes))
        if not votes:
            return
        mean = fmean(votes)
        spread = math.fsum((vote - mean) ** 2 for vote in votes) / max(1, len(votes) - 1)
        half = quantile(self._settings.confidence) * math.sqrt(spread / len(votes))
        figures |= {
            "prompts_preference": mean,
            "prompts_preference_low": max(0.0, mean - half),
            "prompts_preference_high": min(1.0, mean + half),
        }
        limit = self._settings.preference_low
        if len(votes) >= self._settings.least and mean < limit and mean + half < 0.5:
            text = f"judge {self._judge.name} prefers it on {mean:.2f} of {len(votes)} prompts"
            findings.append(Finding("opinion", f"{text}, {limit:g} are needed"))


def _chosen(runs: Sequence[HeldOut], settings: PromptSettings) -> list[str]:
    """Ids of the exchanges to replay, in the order of `runs`."""
    wanted: list[tuple[str, str]] = []
    for one in runs:
        run = one.run
        failed = run.outcome is not None and run.outcome < _SUCCESS
        if failed or run.experience_ids:
            continue
        steps = [step.exchange_id for step in run.steps if step.exchange_id]
        stride = max(1, len(steps) // max(1, settings.each))
        wanted += [(step, one.party) for step in steps[::stride][: settings.each]]
    # After the agents' turns: a party may name as many tool lists as it likes.
    taken = newest((party for _, party in wanted), settings.most, len(wanted))
    return [wanted[place][0] for place in taken]


def _prompt(exchange: Exchange, number: int, settings: PromptSettings) -> Prompt | None:
    """The prompt in `exchange`; None if it cannot be replayed as a chat completion, or nobody knows its answer."""
    # A strict tool leaves the model its choice.
    plain = not exchange.sampling.forced or exchange.sampling.bent_by == "strict tools"
    usable = exchange.status == 200 and exchange.complete and plain
    if not usable or dialect_at(exchange.endpoint) != "chat" or len(exchange.request) > settings.max_bytes:
        return None
    try:
        request = msgspec.json.decode(exchange.request, type=dict[str, Any])
        produced = answer_of(msgspec.json.decode(exchange.response, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    messages, tools = request.get("messages"), request.get("tools")
    if produced is None or not isinstance(messages, list) or not messages:
        return None
    asked = request.get("max_completion_tokens") or request.get("max_tokens")
    limit = min(settings.max_tokens, asked) if isinstance(asked, int) and asked > 0 else settings.max_tokens
    body = {key: request[key] for key in _SAMPLING if request.get(key) is not None}
    body |= {"messages": messages, "max_tokens": limit, "seed": 1 + number, "logprobs": True}
    return Prompt(body | ({"tools": tools} if isinstance(tools, list) and tools else {}), produced)

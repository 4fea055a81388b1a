"""Replay of production prompts: what would the candidate have answered where production answered something?

Prompts of the newest held-out runs that did not fail, of all parties and agents in turn (`evidence`). Both versions
answer each once, as the agent had asked, with the same seed; nothing is carried out. Invalid calls, refusals, circles,
cut answers, length and entropy have limits. A share breaks its limit if the paired interval says so too: with a few
dozen prompts a limit alone would reject half of all candidates by chance.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from actors.gate.asking import Shares, ask
from actors.gate.evidence import HeldOut, recent_runs
from actors.gate.panel import Finding, Kind, Report
from actors.messages import Exchange
from actors.messages.dialects import dialect_at
from actors.messages.sampling import NUMBERS
from actors.ports.engines import Engine
from actors.ports.parsed_calls import offered
from actors.statistics.parties import newest
from actors.store import Store
from actors.tool_results.answers import Answer, loops, refuses, valid_calls

_SUCCESS = 0.5
_SAMPLING = ("temperature", *NUMBERS, "tool_choice", "parallel_tool_calls")
"""What of the agent's request decides about the answer, beside messages and tools."""
_SURE = 0.1
"""Nats a token. An incumbent below this counts as this where a candidate may not be higher by more than a factor: one
that fails for sure since a tool was renamed has next to none, and whoever learns the new name many times that."""
_EACH = 2
"""Prompts of one trajectory at most: more of them say the same."""
_LEAST = 24
"""With fewer prompts answered by both versions nothing is concluded: an interval would be too wide."""
_MAX_BYTES = 200_000
"""Requests larger than this are left out: each takes the shadow engine seconds."""
_CONFIDENCE = 0.99
"""Two-sided, of the intervals that must agree before a share breaks its limit: four are looked at in each verdict."""
_LENGTH_LOW, _LENGTH_HIGH = 0.5, 2.0
"""Length of its answers in tokens, as a multiple of the incumbent's: what agents do not notice."""
_ENTROPY_HIGH = 3.0
"""Entropy of its tokens, as a multiple of the incumbent's: above, it is guessing."""
_CONDUCT: Mapping[str, tuple[str, Callable[[Answer, Mapping[str, Any]], bool], float]] = {
    "invalid": ("tool calls that are not valid", lambda answer, schemas: not valid_calls(answer, schemas), 0.05),
    "refusals": ("refusals", lambda answer, schemas: refuses(answer), 0.05),
    "loops": ("answers in circles", lambda answer, schemas: loops(answer), 0.05),
    "cut": ("answers cut off", lambda answer, schemas: answer.cut, 0.1),
}
"""By figure: the words for it, what of an answer it is, and how much more often than the incumbent a candidate may do
so. It may be cut off more often: the limit of tokens is lower here than where agents ask."""


class PromptCheck:
    """`Check` on replayed production prompts."""

    name = "prompts"

    def __init__(
        self, *, engine: Engine, store: Store, most: int = 64, max_tokens: int = 512, entropy_low: float = 0.2
    ) -> None:
        """
        Args:
            most: prompts replayed at most; 0 replays nothing.
            max_tokens: of one answer at most; less if the agent had asked for less.
            entropy_low: least entropy of its tokens, as a multiple of the incumbent's: below, it has collapsed to few
                answers.
        """
        self._engine, self._store, self._most = engine, store, most
        self._max_tokens, self._entropy_low = max_tokens, entropy_low
        self._prompts: list[dict[str, Any]] = []
        """Requests to replay."""

    async def gather(self) -> int:
        wanted = _chosen(await recent_runs(self._store), self._most)
        found = {exchange.id: exchange for exchange in await self._store.exchanges(wanted)}
        prompts = (
            _prompt(found[name], number, self._max_tokens) for number, name in enumerate(wanted) if name in found
        )
        self._prompts = [prompt for prompt in prompts if prompt is not None]
        return len(self._prompts)

    async def measure(self) -> list[Answer | None]:
        return await ask(self._engine, self._prompts)

    def judge(self, candidate: Sequence[Answer | None], incumbent: Sequence[Answer | None]) -> Report:
        answered = [
            (offered(prompt.get("tools") or ()), (mine, theirs))
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
        for key, (what, holds, limit) in _CONDUCT.items():
            mine, theirs = ([holds(pair[side], schemas) for schemas, pair in answered] for side in (0, 1))
            share = Shares.of(mine, theirs, _CONFIDENCE)
            figures[f"prompts_{key}"], figures[f"prompts_incumbent_{key}"] = share.candidate, share.incumbent
            if share.rose(limit):
                told = (
                    f"{what} {share.candidate:.2f} against {share.incumbent:.2f} on {len(answered)} production prompts"
                )
                findings.append(Finding("conduct", f"{told}, a rise of {limit:g} is allowed"))
        tokens, before = (fmean(pair[side].tokens for _, pair in answered) for side in (0, 1))
        if before > 0:  # the engine says it
            figures["prompts_length_ratio"] = tokens / before
            if not _LENGTH_LOW * before <= tokens <= _LENGTH_HIGH * before:
                findings.append(_off("conduct", "length", tokens / before, _LENGTH_LOW, _LENGTH_HIGH))
        entropy, before = (fmean(pair[side].surprisal for _, pair in answered) for side in (0, 1))
        figures |= {"prompts_entropy": entropy, "prompts_incumbent_entropy": before}
        if before > 0:  # the incumbent hesitates at times
            figures["prompts_entropy_ratio"] = entropy / before
            if not self._entropy_low * before <= entropy <= _ENTROPY_HIGH * max(before, _SURE):
                findings.append(_off("drift", "entropy", entropy / before, self._entropy_low, _ENTROPY_HIGH))
        return Report(tuple(findings) if len(answered) >= _LEAST else (), figures)


def _off(kind: Kind, what: str, ratio: float, low: float, high: float) -> Finding:
    return Finding(kind, f"{what} {ratio:.2f} times the incumbent's, {low:g} to {high:g} are allowed")


def _chosen(runs: Sequence[HeldOut], most: int) -> list[str]:
    """Ids of the exchanges to replay, in the order of `runs`."""
    wanted: list[tuple[str, str]] = []
    for one in runs:
        run = one.run
        failed = run.outcome is not None and run.outcome < _SUCCESS
        if failed or run.experience_ids:
            continue
        steps = [step.exchange_id for step in run.steps if step.exchange_id]
        stride = max(1, len(steps) // _EACH)
        wanted += [(step, one.party) for step in steps[::stride][:_EACH]]
    # After the agents' turns: a party may name as many tool lists as it likes.
    taken = newest((party for _, party in wanted), most, len(wanted))
    return [wanted[place][0] for place in taken]


def _prompt(exchange: Exchange, number: int, max_tokens: int) -> dict[str, Any] | None:
    """The prompt in `exchange`; None if it cannot be replayed as a chat completion."""
    # A strict tool leaves the model its choice.
    plain = exchange.sampling.bent_by in ("", "strict tools")
    usable = exchange.status == 200 and exchange.complete and plain
    if not usable or dialect_at(exchange.endpoint) != "chat" or len(exchange.request) > _MAX_BYTES:
        return None
    try:
        request = msgspec.json.decode(exchange.request, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    messages, tools = request.get("messages"), request.get("tools")
    if not isinstance(messages, list) or not messages:
        return None
    asked = request.get("max_completion_tokens") or request.get("max_tokens")
    limit = min(max_tokens, asked) if isinstance(asked, int) and asked > 0 else max_tokens
    body = {key: request[key] for key in _SAMPLING if request.get(key) is not None}
    body |= {"messages": messages, "max_tokens": limit, "seed": 1 + number, "logprobs": True}
    return body | ({"tools": tools} if isinstance(tools, list) and tools else {})

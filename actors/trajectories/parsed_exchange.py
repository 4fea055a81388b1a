"""A turn: what stitching needs of an exchange, read once from its JSON so that open trajectories stay small in memory.

A request carries the whole conversation so far; kept whole, an open trajectory would cost the square of its length.
What remains of the past are digests: of the conversation up to the last answer in it, and of all.
"""

import hashlib
import sys
from collections.abc import Collection, Sequence
from itertools import takewhile

import msgspec

from actors.dialects import Conversation, Item, canonical, digest, read_conversation
from actors.messages import GRAMMARS, Exchange, Hints, Sampled, Sampling, VersionSpan, pack_array, token_versions
from actors.messages.sampling import NUMBERS

_FULL = Sampling()
MAX_TEXT = 100_000
"""Characters kept of a goal or an observation: a trajectory is no archive, the exchange is."""
_MOST_EMPTY = 4
"""Places where an empty answer may have been that are looked at, the newest."""
_MAX_SYSTEM = 2000
"""Characters kept of the system's words."""


class Answer(Item, frozen=True):
    """What the model said, in one choice or in a client's echo."""

    future: str = ""
    """Digest of the conversation with this answer: the `history` of the turn that follows."""
    outline: str = ""
    """Digest of the goal, the depth and this answer: what is left when all else is rewritten between two calls."""


class ParsedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One successful call of a conversation."""

    id: str
    """Of the exchange."""
    tenant: str
    caller: str = ""
    started: float
    ended: float
    response_id: str
    hints: Hints
    answered: tuple[str, ...]
    """Ids of earlier tool calls and parts of answers in its conversation, the newest last."""
    system: str = ""
    """What the system said first, its beginning: it tells agents of one session apart."""
    history: str
    """Digest of the conversation up to the last answer of the model; empty if there was none yet."""
    requests: tuple[str, ...] = ()
    """Digests of the conversation up to each place where an earlier request may have ended whose answer is not told:
    after the last answer, where one without a word may have been, which clients leave out of what they send next, the
    newest first; of a mirrored call also before the last answer. They are the `future` of such an answer."""
    outline: str = ""
    """As in `Answer`, of the last answer in the request."""
    depth: int
    """Answers of the model in the conversation before this one."""
    goal: str
    tools: bytes
    """JSON of the request's tool list."""
    observation: str
    """What came back since the last answer of the model: tool results, or what the user said next."""
    results: bool = False
    """The observation has results of tools in it."""
    echo: Answer | None = None
    """The last answer in the request, kept of mirrored calls: the answer to one stands in the next."""
    answers: tuple[Answer, ...] = ()
    """One a choice; of a mirrored call one without a word."""
    tokens: Sampled = Sampled()
    sampling: Sampling = Sampling()
    why_not: str = ""
    """Why its tokens must not be trained on; empty if they may."""

    @property
    def explicit(self) -> str:
        """Trajectory, or conversation, that the call named itself."""
        return self.hints.trajectory_id or self.hints.conversation

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        numbers = len(self.tokens.prompt_ids) + 4 * len(self.tokens.response_ids)
        said = sum(len(answer.text) + 200 for answer in self.answers)
        return 1500 + numbers + len(self.system) + len(self.goal) + len(self.tools) + len(self.observation) + said


def read_turn(
    exchange: Exchange, processed: Collection[str] = (), version: int = -1, *,
    rerendered: Sampled | None = None,
) -> ParsedExchange:  # fmt: skip
    """The turn in `exchange`; one that cannot be read keeps its place, without text and not to be trained on.

    Args:
        processed: engines whose log-probs are those of the distribution that was sampled from.
        version: weights that sampled it, where the engine does not say; -1 if that is not known.
        rerendered: tokens of a call that something was taken out of; without them it has none.
    """
    said = read_conversation(exchange)
    items, mirrored = said.items, exchange.source == "mirror"
    last = max((i for i, item in enumerate(items) if item.role == "assistant"), default=-1)
    depth = sum(item.role == "assistant" for item in items)
    goal = next((item.text for item in items if item.role == "user"), "")
    about = " ".join(goal.split()).encode("utf-8", "replace")
    state, history, outline = hashlib.blake2b(digest_size=16), "", ""
    requests: list[str] = []
    for position, item in enumerate(items):
        behind = position > last + 1 and item.role == "user" and not _is_system(items[position - 1])
        if behind or (mirrored and position == last):
            requests.append(state.hexdigest())
        form = canonical(item)
        state.update(form)
        if position == last:
            history, outline = state.hexdigest(), _outline(about, depth, item, form)

    def answer(item: Item) -> Answer:
        after, form = state.copy(), canonical(Item("assistant", item.text, item.calls))
        after.update(form)
        return _answer(item, after.hexdigest(), _outline(about, depth + 1, item, form))

    since = items[last + 1 :] if last >= 0 or exchange.hints.previous_response_id else ()
    tokens = rerendered or _told(exchange, version)
    return ParsedExchange(
        id=exchange.id,
        tenant=exchange.tenant,
        caller=exchange.caller,
        started=exchange.started,
        ended=exchange.started + exchange.duration,
        response_id=exchange.response_id,
        hints=exchange.hints,
        answered=_answered(items),
        # Calls of one agent have the same words: kept once.
        system=sys.intern("\n".join(item.text for item in takewhile(_is_system, items))[:_MAX_SYSTEM]),
        history=history,
        requests=tuple(reversed(requests[-_MOST_EMPTY:])),
        outline=outline,
        depth=depth,
        goal=goal[:MAX_TEXT],
        tools=said.tools,
        observation="\n".join(item.text for item in since if item.role in ("tool", "user"))[:MAX_TEXT],
        results=any(item.role == "tool" for item in since),
        echo=_answer(items[last], history, outline) if mirrored and last >= 0 else None,
        answers=tuple(map(answer, said.answers or [Item("assistant")] * mirrored)),
        tokens=tokens,
        sampling=exchange.sampling,
        why_not=_why_not(exchange, said if items else None, tokens, exchange.engine in processed),
    )


def _why_not(exchange: Exchange, said: Conversation | None, tokens: Sampled, processed: bool) -> str:
    if exchange.source == "mirror":
        return "mirrored"
    if not exchange.complete:
        return "incomplete"
    if exchange.error or said is None or not said.answers:
        return "unreadable"
    if exchange.redacted and not tokens.response_ids:
        return f"redacted {exchange.redacted[0]}"
    if len(said.answers) > 1:
        # Which one the agent went on with, if any, is known too late to be a step of one sequence.
        return "several choices"
    if not tokens.response_ids:
        return exchange.why_no_tokens or "no token ids"
    sampling = exchange.sampling
    if sampling.temperature <= 0.0:
        return "temperature 0"
    if sampling.bent_by and sampling.bent_by not in GRAMMARS:
        return sampling.bent_by
    if processed:
        return ""
    # Raw log-probs are those of the full softmax at temperature 1, after a grammar's mask and before all else: whatever
    # else was done, nobody knows the probability that the token was drawn with.
    if sampling.temperature != 1.0:
        return "temperature"
    return next((name for name in NUMBERS if getattr(sampling, name) != getattr(_FULL, name)), "")


def _is_system(item: Item) -> bool:
    return item.role == "system"


def _told(exchange: Exchange, assumed: int) -> Sampled:
    """The tokens that came with the call. Of one that something was taken out of the weights alone: a run of such calls
    is still one of theirs to whoever compares versions by their outcomes."""
    if exchange.redacted:
        return Sampled(versions=pack_array([assumed], "<i4") if assumed >= 0 else b"")
    if not exchange.prompt_ids or not exchange.response_ids or len(exchange.logprobs) != len(exchange.response_ids):
        return Sampled()
    number = len(exchange.response_ids) // 4
    spans = exchange.versions or (VersionSpan(assumed, 0, number),)
    return Sampled(
        prompt_ids=exchange.prompt_ids, response_ids=exchange.response_ids, logprobs=exchange.logprobs,
        versions=pack_array(token_versions(spans, number), "<i4"),
    )  # fmt: skip


def _answer(item: Item, future: str, outline: str) -> Answer:
    return Answer("assistant", item.text[:MAX_TEXT], item.calls, "", item.refs, item.cut, future, outline)


def _outline(about: bytes, depth: int, answer: Item, form: bytes) -> str:
    """Text alone where there is text: clients write calls of their own making beside it.

    Args:
        form: of `answer`, all of it.
    """
    if answer.calls:
        form = canonical(Item("assistant", answer.text) if answer.text.strip() else Item("assistant", "", answer.calls))
    return digest(about, b"%d" % depth, form)


def _answered(items: Sequence[Item]) -> tuple[str, ...]:
    ids = dict[str, None]()
    for item in items:
        ids.update(dict.fromkeys(call.id for call in item.calls if call.id))
        ids.update(dict.fromkeys(item.refs))
        if item.call_id:
            ids[item.call_id] = None
    return tuple(ids)

"""What is copied of a call, and what the engine is asked for on the way so that the copy can be learned from.

Nothing in here understands a response: that is the daemon's work. What it must understand of a request is little: which
fields an agent left out, and a few headers.
"""

import os
import re
from urllib.parse import unquote_to_bytes

import msgspec

from actors.messages import Hints, new_id
from actors.messages.raw import RawExchange
from daemon.tap.admission import Visitor
from daemon.tap.errors import Refused
from daemon.tap.reply import ReplyParser
from daemon.tap.request import DROPPED, Copied, Head, Request

CHAT = b"/v1/chat/completions"
COMPLETIONS = b"/v1/completions"
RESPONSES = b"/v1/responses"
MESSAGES = b"/v1/messages"
FEEDBACK = b"/v1/feedback"
TOKEN_FIELDS = ("logprobs", "return_token_ids", "return_weight_versions")
_WANTED = {
    CHAT: {"logprobs": b"true", "return_token_ids": b"true", "return_weight_versions": b"true"},
    COMPLETIONS: {"logprobs": b"0", "return_token_ids": b"true", "return_weight_versions": b"true"},
    RESPONSES: {"enable_response_messages": b"true"},
    MESSAGES: {"evolved_tokens": b"true"},
}
"""What an engine is asked for, by path. A completion's `logprobs` is the number of alternatives beside the sampled
token; vLLM gives ids on these paths only: log-probs of responses, and all of messages, with the plug-in alone."""
_BACKGROUND = b'"background"'
_MARKS = {
    CHAT: (b'"logprobs"', b'"return_'),
    COMPLETIONS: (b'"logprobs"', b'"return_'),
    RESPONSES: (b'"enable_response_messages"', _BACKGROUND),
    MESSAGES: (b'"evolved_tokens"',),
}
"""Without them a body names none of these fields."""
_STORED = b"/v1/responses/"
"""Below it an engine that stores responses shows them again, with all that was asked for when they were made."""
_REFUSED = frozenset({b".", b"..", b"load_lora_adapter", b"unload_lora_adapter"})
"""Segments of a path that do not pass: what leads out of /v1, and vLLM's admin plane where it reaches into it."""
_TRICKS = re.compile(rb"[%\\#?\x00-\x1f\x7f]")
"""What no path of ours holds once it is decoded."""


class _Asked(msgspec.Struct):
    """The fields of a request that decide what its response carries; the rest is skipped unread."""

    logprobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_token_ids: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_weight_versions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    enable_response_messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    evolved_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    background: msgspec.Raw = msgspec.Raw(b"null")


_asked = msgspec.json.Decoder(_Asked)


def check_path(path: bytes) -> None:
    """Let `/v1/*` and `/health` pass: an engine's admin plane has no keys of its own."""
    plain = unquote_to_bytes(path) if b"%" in path else path
    if plain == b"/health":
        return
    # The engine, or a proxy before it, may resolve dot segments, cut off parameters and blanks, end at a NUL or decode
    # once more: what only looks like /v1/ does not pass.
    bare = {segment.partition(b";")[0].strip() for segment in plain.split(b"/")}
    inside = plain.startswith(b"/v1/") and b"//" not in plain and not _TRICKS.search(plain)
    if not inside or bare & _REFUSED:
        shown = path.decode("latin-1")[:200]
        raise Refused(404, "unknown_path", f"unknown path {shown!r}: /v1/* and /health are served here")


def with_tokens(body: bytes, path: bytes = CHAT) -> tuple[bytes, tuple[str, ...]]:
    """The body for the engine, which asks for what is wanted of `path` where the client's does not name it; and the
    names of the fields that were added.

    All that the client wrote stays byte for byte. A body that is no JSON object comes back as it is, or as one that is
    none either: the engine's own error is the one to show.
    """
    start, end = body.find(b"{"), body.rfind(b"}")
    # vLLM (0.32) leaves an echoed prompt out of the text when it is asked for token ids.
    if start < 0 or end < start or (path == COMPLETIONS and b'"echo"' in body):
        return body, ()
    missing, added = _ALL[path]
    # A long prompt takes ten times longer to parse than to search (from behind), and hardly any names these fields.
    if any([body.rfind(mark) >= 0 for mark in _MARKS[path]]):
        try:
            asked = _asked.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return body, ()
        missing = tuple([name for name in missing if getattr(asked, name) is msgspec.UNSET])
        # vLLM tells the messages of no response that is made in the background.
        if not missing or (path == RESPONSES and bytes(asked.background) not in (b"null", b"false")):
            return body, ()
        added = _asking(path, missing)
    # The last bytes tell it for all but bodies of blanks, and copy no long prompt.
    comma = b"," if body[max(start + 1, end - 64) : end].strip() or body[start + 1 : end].strip() else b""
    return b"".join((body[:end], comma, added, body[end:])), missing


def _asking(path: bytes, names: tuple[str, ...]) -> bytes:
    return b",".join([b'"%b":%b' % (name.encode(), _WANTED[path][name]) for name in names])


_ALL = {path: (tuple(wanted), _asking(path, tuple(wanted))) for path, wanted in _WANTED.items()}
"""(names, bytes) of what is asked for if a body names none of it: nearly always."""


class Plan(msgspec.Struct, frozen=True, gc=False):
    """How one request is treated."""

    body: bytes
    keep: bool
    added: tuple[str, ...] = ()
    """Fields asked for by the tap, to be hidden from the agent."""
    dropped: frozenset[bytes] = DROPPED


class RecordIds:
    """Record ids that no other process makes: a random half and a running number. Cheaper than a system call each."""

    def __init__(self) -> None:
        self._random, self._number = os.urandom(8), 0

    def next(self) -> str:
        self._number += 1
        return (self._random + self._number.to_bytes(8)).hex()


_KEY = DROPPED | {b"x-evolved-key"}
_AUTHORIZED = _KEY | {b"authorization"}
# A compressed answer could not be rewritten.
_KEY_PLAIN = _KEY | {b"accept-encoding"}
_AUTHORIZED_PLAIN = _AUTHORIZED | {b"accept-encoding"}


class Capture:
    """Decides what of a call is kept, and makes the record."""

    def __init__(self, *, tokens: bool) -> None:
        """
        Args:
            tokens: ask for token ids.
        """
        self._tokens = tokens

    def holds(self, target: bytes) -> bool:
        """Whether calls to `target` have to be whole before they go on."""
        return self._tokens and target.partition(b"?")[0] in _WANTED

    def plan(self, request: Request, visitor: Visitor) -> Plan:
        """What to do with `request`. LLM calls are posts under /v1; all else passes without leaving a trace."""
        head, body = request.head, request.body
        path = head.path
        ours = visitor.strip_authorization
        dropped = _AUTHORIZED if ours else _KEY
        if self._tokens and path.startswith(_STORED) and not head.old:
            # As it was when the response was made, without leaving a trace.
            hidden = tuple(_WANTED[RESPONSES])
            return Plan(body, False, hidden, _AUTHORIZED_PLAIN if ours else _KEY_PLAIN)
        if head.method != b"POST" or not path.startswith(b"/v1/") or not visitor.keep:
            return Plan(body, False, (), dropped)
        added: tuple[str, ...] = ()
        whole = request.upload is None and not head.named.get(b"content-encoding")
        if self._tokens and path in _WANTED and not head.old and whole:
            body, added = with_tokens(body, path)
        if added:
            return Plan(body, True, added, _AUTHORIZED_PLAIN if ours else _KEY_PLAIN)
        return Plan(body, True, added, dropped)

    def record(
        self,
        request: Request,
        visitor: Visitor,
        plan: Plan,
        reply: ReplyParser,
        *,
        record_id: str,
        engine: str,
        body: bytes | None,
        status: int,
        finished: float,
        problem: str,
    ) -> RawExchange:
        """The record of a call that has ended: `body` None was too large to keep, `status` is what the client saw."""
        if not problem and (reply.overflow or body is None):
            problem = "response_too_large" if reply.overflow else "request_too_large"
        copied = request.head.copied or self._copied(request.head)
        pieces = reply.body
        return RawExchange(
            id=record_id,
            tenant=visitor.tenant,
            engine=engine,
            path=copied.path,
            request=body or b"",
            tokens_requested=bool(plan.added),
            status=status,
            response=pieces[0] if len(pieces) == 1 else b"".join(pieces),
            content_type=reply.head.content_type,
            content_encoding=reply.head.content_encoding,
            received=request.received,
            finished=finished,
            complete=not problem,
            problem=problem,
            hints=copied.hints,
            caller=visitor.caller,
        )

    def mirrored(self, request: Request, visitor: Visitor) -> RawExchange:
        copied = request.head.copied or self._copied(request.head)
        return RawExchange(
            id=new_id(),
            tenant=visitor.tenant,
            path=copied.path,
            request=request.body,
            status=0,
            received=request.received,
            finished=request.received,
            problem="mirrored",
            hints=copied.hints,
            source="mirror",
            caller=visitor.caller,
        )

    def _copied(self, head: Head) -> Copied:
        head.copied = Copied(
            head.path.decode("latin-1"),
            Hints(
                trajectory_id=_text(head.named.get(b"x-evolved-trajectory", b"")),
                custom_id=_text(head.named.get(b"x-evolved-id", b"")),
            ),
        )
        return head.copied


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()[:256]

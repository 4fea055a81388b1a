"""What is copied of a call, and what the engine is asked for on the way so that the copy can be learned from.

Nothing in here understands a response: that is the daemon's work. What it must understand of a request is little: which
fields an agent left out, and a few headers.
"""

from urllib.parse import unquote_to_bytes

import msgspec

from actors.messages import Hints, new_id
from actors.messages.spool import RawExchange
from daemon.tap.errors import Refused
from daemon.tap.http import ReplyParser, Request

CHAT = b"/v1/chat/completions"
FEEDBACK = b"/v1/feedback"
TOKEN_FIELDS = ("logprobs", "return_token_ids", "return_weight_versions")
_REFUSED = (b"/v1/load_lora_adapter", b"/v1/unload_lora_adapter")
"""vLLM's admin plane where it reaches into /v1."""
_NO = (b"", b"0", b"false", b"no")


class _Asked(msgspec.Struct):
    """The fields of a chat request that decide what its response carries; the rest is skipped unread."""

    logprobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_token_ids: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_weight_versions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_asked = msgspec.json.Decoder(_Asked)


def check_path(path: bytes) -> None:
    """Let `/v1/*` and `/health` pass: an engine's admin plane has no keys of its own.

    Raises:
        Refused: 404, in all other cases.
    """
    if path == CHAT:
        return
    plain = unquote_to_bytes(path) if b"%" in path else path
    if plain == b"/health":
        return
    # The engine, or a proxy before it, may resolve dot segments: what only looks like /v1/ does not pass.
    inside = plain.startswith(b"/v1/") and b"\\" not in plain and not {b".", b".."} & set(plain.split(b"/"))
    if not inside or b"//" in plain or plain.rstrip(b"/") in _REFUSED:
        shown = path.decode("latin-1")[:200]
        raise Refused(404, "unknown_path", f"unknown path {shown!r}: /v1/* and /health are served here")


def with_tokens(body: bytes) -> bytes:
    """`body` with `logprobs`, `return_token_ids` and `return_weight_versions` asked for where it does not name them.

    All that the client wrote stays byte for byte. A body that is no JSON object comes back as it is: the engine's own
    error is the one to show.
    """
    try:
        asked = _asked.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    missing = [name for name in TOKEN_FIELDS if getattr(asked, name) is msgspec.UNSET]
    start, end = body.find(b"{"), body.rfind(b"}")
    if not missing or start < 0:
        return body
    added = ",".join(f'"{name}":true' for name in missing).encode()
    comma = b"," if body[start + 1 : end].strip() else b""
    return body[:end] + comma + added + body[end:]


class Plan(msgspec.Struct, frozen=True):
    """How one request is treated."""

    body: bytes
    """What goes to the engine."""
    keep: bool
    """A record is to be written."""
    tokens_requested: bool = False
    opted_out: bool = False


class Capture:
    """Decides what of a call is kept, and makes the record."""

    def __init__(self, *, engine: str, tokens: bool, headers: frozenset[bytes]) -> None:
        """
        Args:
            engine: name of the upstream, for the records.
            tokens: ask for token ids.
            headers: names, in lower case, of the request headers to keep.
        """
        self._engine, self._tokens, self._headers = engine, tokens, headers

    def plan(self, request: Request) -> Plan:
        """What to do with `request`. LLM calls are posts under /v1; all else passes without leaving a trace."""
        path = request.path
        if request.method != b"POST" or not path.startswith(b"/v1/"):
            return Plan(request.body, keep=False)
        if opted_out(request):
            return Plan(request.body, keep=False, opted_out=True)
        if self._tokens and path == CHAT and not request.header(b"content-encoding"):
            body = with_tokens(request.body)
            return Plan(body, keep=True, tokens_requested=body is not request.body)
        return Plan(request.body, keep=True)

    def record(
        self, request: Request, plan: Plan, reply: ReplyParser, *, status: int, times: tuple[float, float], problem: str
    ) -> RawExchange:
        """The record of a call that has ended.

        Args:
            status: what the client saw.
            times: unix seconds of the first byte from the engine (0 if none came) and of the end.
            problem: empty if all went well.
        """
        if reply.overflow and not problem:
            problem = "response_too_large"
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, _, value in request.headers
            if name in self._headers
        }
        return RawExchange(
            id=new_id(),
            tenant=tenant(request),
            engine=self._engine,
            method=request.method.decode("latin-1"),
            path=request.path.decode("latin-1"),
            headers=headers,
            request=request.body,
            tokens_requested=plan.tokens_requested,
            status=status,
            response=b"".join(reply.body),
            content_type=reply.content_type.decode("latin-1"),
            content_encoding=reply.content_encoding.decode("latin-1"),
            received=request.received,
            first_byte=times[0],
            finished=times[1],
            complete=not problem,
            problem=problem,
            hints=Hints(trajectory_id=_text(request, b"x-evolved-trajectory")),
        )


def tenant(request: Request) -> str:
    """On whose behalf: the `x-evolved-tenant` header, or the one tenant that there is."""
    return _text(request, b"x-evolved-tenant") or "default"


def opted_out(request: Request) -> bool:
    """Whether `x-evolved-opt-out` is there and says anything but no."""
    return request.header(b"x-evolved-opt-out").strip().lower() not in _NO


def _text(request: Request, name: bytes) -> str:
    return request.header(name).decode("utf-8", "replace").strip()[:256]

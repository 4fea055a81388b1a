"""Token ids, log-probs and weight versions: asked for where the agent did not, and hidden from it again.

Asking appends fields to the JSON of the request. Hiding makes each of them the `null` that the engine writes there when
nobody asks (vLLM names these fields in every answer). All other bytes stay as they were written: values are never
decoded, only found and left out. The forms that vLLM writes are found by their bytes; whatever else there may be, by
reading the JSON (`_rewritten`). Events that vLLM sends for the sake of their token ids alone, with nothing new to say,
are left out whole; so is what the plug-in adds to an answer of `/v1/messages`, where the engine has no such field.

    plain answer   held until it is whole, then rewritten: the engine sends it in one piece anyway
    stream         event by event; the pieces that are ready go on at once, the tail of an unfinished event waits
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

import msgspec

from daemon.tap.errors import UpstreamBroke
from daemon.tap.http import chunk
from daemon.tap.paths import CHAT, COMPLETIONS, MESSAGES, RESPONSES, STORED
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Head

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
# -- asking --------------------------------------------------------------------------------------------------------


class _Asked(msgspec.Struct):
    """The fields of a request that decide what its response carries; the rest is skipped unread."""

    logprobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_token_ids: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    return_weight_versions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    enable_response_messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    evolved_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    background: msgspec.Raw = msgspec.Raw(b"null")


_asked = msgspec.json.Decoder(_Asked)


def asks(head: Head) -> bool:
    """Whether a call is one that fields are added to, as far as its head tells."""
    return head.method == b"POST" and head.path in _WANTED and not head.old and b"content-encoding" not in head.named


def shows_stored(head: Head) -> tuple[str, ...]:
    """The fields to be hidden of an answer that was made earlier, when they were asked for."""
    return tuple(_WANTED[RESPONSES]) if head.path.startswith(STORED) and not head.old else ()


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


# -- hiding --------------------------------------------------------------------------------------------------------

_NULL = msgspec.Raw(b"null")
_MAX_EVENT = 64 << 20

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode = msgspec.json.Encoder().encode


class Hidden:
    """What is to be hidden, and how it is found. Made once for each set of fields."""

    __slots__ = ("beside", "fields", "ids", "known", "messages", "named", "shown")

    def __init__(self, asked: Sequence[str]) -> None:
        """
        Args:
            asked: the fields of the request that the tap has added.
        """
        self.ids = "return_token_ids" in asked
        self.messages = _MESSAGES in asked
        """The fields stand in a response of `/v1/responses`, or in the `response` of an event of its stream."""
        self.beside = BESIDE in asked
        """One field of a plain answer, or one event of a stream, is the plug-in's."""
        self.fields = tuple(field for name in asked for field in _NAMES.get(name, (name,)))
        any_of = b"|".join([name.encode() for name in self.fields]) or b"(?!)"
        self.named = re.compile(b'"(?:%b)"' % any_of)
        """One of the fields."""
        self.shown = re.compile(b'"(?:%b)"(?!:null)' % any_of)
        """One that is not null."""
        self.known = tuple(
            (b',"%b":%b' % (name.encode(), begins), b',"%b":null' % name.encode(), ends, len(ends) - keeps)
            for name, begins, ends, keeps in _KNOWN
            if name in self.fields
        )


class ResponseFilter:
    """One response on its way to an agent."""

    __slots__ = ("_held", "_hidden", "_size")

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self._held: list[bytes] = []
        self._size = 0

    def stream(self, piece: bytes) -> bytes:
        """The events that are whole now, rewritten; keeps the unfinished one. UpstreamBroke if that does not end."""
        if self._held:
            self._held.append(piece)
            piece = b"".join(self._held)
            self._held.clear()
        end = _last_end(piece)
        if end < len(piece):
            self._held.append(piece[end:])
            if len(piece) - end > _MAX_EVENT:
                raise UpstreamBroke(f"an event above {_MAX_EVENT} bytes")
        if not end:
            return b""
        whole, hidden = self._without_known(piece[:end]), self._hidden
        if not hidden.shown.search(whole) and not (hidden.ids and whole.rfind(_SILENT) >= 0):
            return whole
        blank = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        events = [self._event(event) for event in whole.split(blank)]
        return blank.join([event for event in events if event is not None])

    def hold(self, piece: bytes) -> None:
        """A piece of a plain answer. UpstreamBroke if it does not end."""
        self._held.append(piece)
        self._size += len(piece)
        if self._size > 4 * _MAX_EVENT:
            raise UpstreamBroke(f"an answer above {4 * _MAX_EVENT} bytes")

    def whole(self) -> bytes:
        return self._rewritten(b"".join(self._held))

    def rest(self) -> bytes:
        """What a stream left without an end of event: it goes on as it is unless it may hold what is to be hidden."""
        rest = b"".join(self._held)
        return b"" if self._hidden.named.search(rest) else rest

    def _without_known(self, data: bytes) -> bytes:
        """`data` with the known forms of the hidden fields made null. A quote in a JSON text is escaped, so byte
        sequences with one are fields wherever they stand; and the value of a field ends where the next one begins.
        """
        for begins, null, ends, skip in self._hidden.known:
            start = data.rfind(begins)  # from behind because that is twice as fast
            if start < 0:
                continue
            if data.find(begins, 0, start) < 0:
                # The only one: a plain answer, or one event. Searching its value once more would cost most of all.
                end = data.find(ends, start)
                if end >= 0:
                    data = b"".join((data[:start], null, data[end + skip :]))
                continue
            first, *others = data.split(begins)
            parts = [first]
            for part in others:
                end = part.find(ends)
                parts.append(begins + part if end < 0 else null + part[end + skip :])
            data = b"".join(parts)
        return data

    def _event(self, event: bytes) -> bytes | None:
        if self._hidden.beside and event.startswith(_BESIDE_EVENT):
            return None
        if self._hidden.messages and event.startswith(_TYPED):
            line, end, event = event.partition(b"\n")
            rest = self._event(event)
            return None if rest is None else line + end + rest
        # vLLM writes one data line an event; anything else holds no fields of ours.
        if not event.startswith(b"data: {") or b"\n" in event:
            return event
        told = self._rewritten(event[6:])
        if self._hidden.ids and _says_nothing(told):
            return None
        return b"data: " + told

    def _rewritten(self, data: bytes) -> bytes:
        data = self._without_known(data)
        if not self._hidden.shown.search(data):
            return data
        try:
            body = _object.decode(data)
            if self._hidden.beside:
                return _without(data, body, BESIDE)
            changed = self._blank(body)
            inner = body.get("response") if self._hidden.messages else None
            if inner is not None and bytes(inner) != b"null":
                response = _object.decode(inner)
                if self._blank(response):
                    body["response"] = msgspec.Raw(_encode(response))
                    changed = True
            raw = body.get("choices")
            if raw is not None:
                choices = _objects.decode(raw)
                inner = False
                for choice in choices:
                    inner |= self._blank(choice)
                if inner:
                    body["choices"] = msgspec.Raw(_encode(choices))
                    changed = True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # No completion of a known form: the engine's own affair.
            return data
        return _encode(body) if changed else data

    def _blank(self, fields: dict[str, msgspec.Raw]) -> bool:
        changed = False
        for name in self._hidden.fields:
            if name in fields and bytes(fields[name]) != b"null":
                fields[name] = _NULL
                changed = True
        return changed


_SILENT = b'"delta":{}'
_AFTER = b'},"finish_reason":'
_KNOWN = (
    ("logprobs", b"{", _AFTER, len(_AFTER) - 1),
    ("token_ids", b"[", b"]", 0),
    ("prompt_token_ids", b"[", b"]", 0),
)
"""(field, how vLLM begins its value, how it goes on behind it, how many bytes of that belong to what follows)"""
_MESSAGES = "enable_response_messages"
BESIDE = "evolved_tokens"
"""The field of a request, of its answer and the event (`evolved_vllm.messages`)."""
_BESIDE_EVENT = b"event: evolved_tokens\n"
_NAMES = {
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "return_weight_versions": ("weight_versions",),
    _MESSAGES: ("input_messages", "output_messages"),
}
"""The fields of an answer by the fields of the request that ask for them, where the names differ."""
_TYPED = b"event: "
"""How an event begins that says its type on a line of its own, as those of `/v1/responses` do."""


def _without(data: bytes, body: dict[str, msgspec.Raw], name: str) -> bytes:
    """`data`, which reads as `body`, without the field; every other byte stays where the field is written without
    blanks."""
    found = body.pop(name, None)
    if found is None:
        return data
    written = b',"%b":%b' % (name.encode(), bytes(found))
    start = data.rfind(written)
    return _encode(body) if start < 0 else data[:start] + data[start + len(written) :]


def _says_nothing(data: bytes) -> bool:
    """Whether an event has one choice with an empty delta and no end: what is sent only if token ids are asked for."""
    if _SILENT not in data or b'"finish_reason":null' not in data:
        return False
    try:
        body = _object.decode(data)
        choices = _objects.decode(body.get("choices") or b"[]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    usage = body.get("usage")
    quiet = usage is None or bytes(usage) == b"null"
    return quiet and len(choices) == 1 and all(bytes(c.get("delta") or b"") == b"{}" for c in choices)


def _last_end(data: bytes) -> int:
    if data.endswith(b"\n\n"):
        return len(data)
    end = data.rfind(b"\n\n")
    crlf = data.rfind(b"\r\n\r\n")
    return max(end + 2 if end >= 0 else 0, crlf + 4 if crlf >= 0 else 0)


@cache
def _hidden(added: tuple[str, ...]) -> Hidden:
    return Hidden(added)


class HiddenAnswer:
    """One answer of the engine on its way to an agent, head and framing and all, without the fields that were added."""

    def __init__(self, added: tuple[str, ...]) -> None:
        self._filter = ResponseFilter(_hidden(added))
        self._form: Literal["", "plain", "stream", "other"] = ""
        """Nothing is hidden in `other` ones: errors, and what is unknown. Empty until the head is whole."""
        self._head: list[bytes] = []
        """Its bytes until then."""

    @property
    def framed(self) -> bool:
        """Whether its end is ours to tell."""
        return self._form in ("plain", "stream")

    def shown(self, data: bytes, reply: ReplyParser) -> bytes:
        """What goes on for `data`, which `reply` has read."""
        out = b""
        if not self._form:
            self._head.append(data)
            if not reply.head_done:
                return b""
            self._form = _form(reply)
            if self._form == "other":
                return b"".join(self._head)
            if self._form == "stream":
                # The head goes out with the first events, so that a drain can write into it.
                out = reply.head.own() + b"Transfer-Encoding: chunked\r\n\r\n"
        if self._form == "other":
            return data
        if self._form == "plain":
            self._filter.hold(reply.fresh)
        elif shown := self._filter.stream(reply.fresh):
            out += chunk(shown)
        return out + self.ending(reply) if reply.done else out

    def ending(self, reply: ReplyParser) -> bytes:
        """What is left when the answer is over."""
        if self._form == "plain":
            body = self._filter.whole()
            return b"%bContent-Length: %d\r\n\r\n%b" % (reply.head.own(), len(body), body)
        if self._form == "stream":
            rest = self._filter.rest()
            return (chunk(rest) if rest else b"") + b"0\r\n\r\n"
        return b""


def _form(reply: ReplyParser) -> Literal["plain", "stream", "other"]:
    head = reply.head
    kind = head.content_type.lower()
    if head.status != 200 or head.content_encoding:
        return "other"
    if kind.startswith("text/event-stream"):
        return "stream"
    return "plain" if kind.startswith("application/json") else "other"

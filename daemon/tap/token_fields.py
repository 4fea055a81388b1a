"""Token ids, log-probs and weight versions: asked for where the agent did not, and hidden from it again.

Asking appends fields to the JSON of the request. Hiding makes each of them the `null` that the engine writes there when
nobody asks (vLLM names these fields in every answer). All other bytes stay as they were written: values are never
decoded, only found and left out. The forms that vLLM writes are found by their bytes; whatever else there may be, by
reading the JSON. Events that vLLM sends for the sake of their token ids alone, with nothing new to say,
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
from daemon.tap.paths import CHAT, COMPLETIONS, MESSAGES, RESPONSES, STORED
from daemon.tap.reply import ReplyHead, ReplyParser
from daemon.tap.request import Request

TOKEN_FIELDS = ("logprobs", "return_token_ids", "return_weight_versions")
_MESSAGES = "enable_response_messages"
_BESIDE = "evolved_tokens"
"""The field of a request, of its answer and the event (`evolved_vllm.messages`)."""
_WANTED = {
    CHAT: dict.fromkeys(TOKEN_FIELDS, b"true"),
    COMPLETIONS: {**dict.fromkeys(TOKEN_FIELDS, b"true"), "logprobs": b"0"},
    RESPONSES: {_MESSAGES: b"true"},
    MESSAGES: {_BESIDE: b"true"},
}
"""What an engine is asked for, by path. A completion's `logprobs` is the number of alternatives beside the sampled
token; vLLM gives ids on these paths only: log-probs of responses, and all of messages, with the plug-in alone."""
_MARKS = {
    CHAT: (b'"logprobs"', b'"return_'),
    COMPLETIONS: (b'"logprobs"', b'"return_'),
    RESPONSES: (b'"enable_response_messages"', b'"background"'),
    MESSAGES: (b'"evolved_tokens"',),
}
"""Without them a body names none of these fields."""
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NULL = msgspec.Raw(b"null")

# -- asking --------------------------------------------------------------------------------------------------------


def asked(request: Request, *, kept: bool) -> tuple[bytes, tuple[str, ...]]:
    """The body for the engine, which asks for what is wanted where the client's does not name it; and the names of the
    fields that were added, or had been added to a call whose answer the engine has stored.

    All that the client wrote stays byte for byte. A body that is no JSON object comes back as it is, or as one that is
    none either: the engine's own error is the one to show. Nothing is asked for if the call is not `kept`.
    """
    head, body, path = request.head, request.body, request.path
    if path.startswith(STORED) and not head.old:
        return body, (_MESSAGES,)
    if not kept or head.method != b"POST" or path not in _WANTED or head.old or b"content-encoding" in head.named:
        return body, ()
    start, end = body.find(b"{"), body.rfind(b"}")
    # vLLM (0.32) leaves an echoed prompt out of the text when it is asked for token ids.
    if start < 0 or end < start or (path == COMPLETIONS and b'"echo"' in body):
        return body, ()
    missing = _ALL[path]
    # A long prompt takes ten times longer to parse than to search (from behind), and hardly any names these fields.
    if any([body.rfind(mark) >= 0 for mark in _MARKS[path]]):
        try:
            named = _object.decode(body)
        except _UNREADABLE:
            return body, ()
        # vLLM tells the messages of no response that is made in the background.
        if path == RESPONSES and bytes(named.get("background", _NULL)) not in (b"null", b"false"):
            return body, ()
        missing = tuple([name for name in missing if name not in named])
        if not missing:
            return body, ()
    # The last bytes tell it for all but bodies of blanks, and copy no long prompt.
    comma = b"," if body[max(start + 1, end - 64) : end].strip() or body[start + 1 : end].strip() else b""
    return b"".join((body[:end], comma, _asking(path, missing), body[end:])), missing


_ALL = {path: tuple(wanted) for path, wanted in _WANTED.items()}


@cache
def _asking(path: bytes, names: tuple[str, ...]) -> bytes:
    return b",".join([b'"%b":%b' % (name.encode(), _WANTED[path][name]) for name in names])


# -- hiding --------------------------------------------------------------------------------------------------------

_MAX_EVENT = 64 << 20
_MAX_ANSWER = 4 * _MAX_EVENT
_NAMES = {
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "return_weight_versions": ("weight_versions",),
    _MESSAGES: ("input_messages", "output_messages"),
}
"""The fields of an answer by the fields of the request that ask for them, where the names differ."""
_KNOWN = {"logprobs": (b"{", b'},"finish_reason":'), "token_ids": (b"[", b"]"), "prompt_token_ids": (b"[", b"]")}
"""How vLLM begins the value of a field, and its last byte with what follows."""
_SILENT = b'"delta":{}'
_EVENT = re.compile(rb"((?:event: [^\n]*\n)?data: )(\{[^\n]*)")
"""As vLLM writes them: one line of data, behind one with the type where the dialect has types."""


class _Hidden:
    """What is to be hidden, and how it is found. Made once for each set of fields."""

    def __init__(self, asked: Sequence[str]) -> None:
        """`asked`: the fields of the request that the tap has added."""
        self._ids = "return_token_ids" in asked
        self._messages = _MESSAGES in asked
        """The fields stand in a response of `/v1/responses`, or in the `response` of an event of its stream; else in
        an answer, or in its choices."""
        self._beside = _BESIDE in asked
        """One field of a plain answer, or one event of a stream, is the plug-in's."""
        self._fields = [field for name in asked for field in _NAMES.get(name, (name,))]
        # Each of them ends with `s`: a search for that and a quote is three times as fast as one for all of them.
        ends = "|".join([f'(?<="{name}")' for name in self._fields])
        self.shown = re.compile(f's"(?!:null)(?:{ends})'.encode())
        """One of them that is not null."""
        known = [(b',"%b":' % name.encode(), *_KNOWN[name]) for name in self._fields if name in _KNOWN]
        self._known = [(field + begins, field + b"null", ends) for field, begins, ends in known]

    def events(self, whole: bytes) -> bytes:
        """Events of a stream, rewritten."""
        whole = self._without_known(whole)
        if not self.shown.search(whole) and not (self._ids and whole.rfind(_SILENT) >= 0):
            return whole
        blank = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
        events = [self._event(event) for event in whole.split(blank)]
        return blank.join([event for event in events if event is not None])

    def _event(self, event: bytes) -> bytes | None:
        if self._beside and event.startswith(b"event: evolved_tokens\n"):
            return None
        found = _EVENT.fullmatch(event)
        if found is None:
            return event  # it holds no fields of ours
        told = self.answer(found[2])
        return None if self._ids and _says_nothing(told) else found[1] + told

    def answer(self, data: bytes) -> bytes:
        """A plain answer, or the data of an event, rewritten."""
        data = self._without_known(data)
        if not self.shown.search(data):
            return data
        try:
            body = _object.decode(data)
            if self._beside:
                return _without(data, body, _BESIDE)
            changed, place = self._blank(body), "response" if self._messages else "choices"
            inner = bytes(body.get(place, _NULL))
            if inner != b"null":
                parts = [_object.decode(inner)] if self._messages else _objects.decode(inner)
                if any([self._blank(part) for part in parts]):
                    body[place] = msgspec.Raw(_encode(parts[0] if self._messages else parts))
                    changed = True
        except _UNREADABLE:
            # No completion of a known form: the engine's own affair.
            return data
        return _encode(body) if changed else data

    def _blank(self, fields: dict[str, msgspec.Raw]) -> bool:
        shown = [name for name in self._fields if bytes(fields.get(name, _NULL)) != b"null"]
        fields.update(dict.fromkeys(shown, _NULL))
        return bool(shown)

    def _without_known(self, data: bytes) -> bytes:
        """`data` with the known forms of the hidden fields made null. A quote in a JSON text is escaped, so byte
        sequences with one are fields wherever they stand; and the value of a field ends where the next one begins.
        """
        for begins, null, ends in self._known:
            start = data.rfind(begins)  # from behind because that is twice as fast
            if start < 0:
                continue
            if data.find(begins, 0, start) < 0:
                # The only one: a plain answer, or one event. Searching its value once more would cost most of all.
                end = data.find(ends, start)
                if end >= 0:
                    data = b"".join((data[:start], null, data[end + 1 :]))
                continue
            first, *others = data.split(begins)
            ended = [(part, part.find(ends)) for part in others]
            data = first + b"".join([begins + part if end < 0 else null + part[end + 1 :] for part, end in ended])
        return data


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
        choices = _objects.decode(body.get("choices", b"[]"))
    except _UNREADABLE:
        return False
    quiet = bytes(body.get("usage", _NULL)) == b"null"
    return quiet and [bytes(choice.get("delta", _NULL)) for choice in choices] == [b"{}"]


_hidden = cache(_Hidden)


class HiddenAnswer:
    """One answer of the engine on its way to an agent, head and framing and all, without the fields that were added."""

    def __init__(self, added: tuple[str, ...]) -> None:
        self._hidden = _hidden(added)
        self._form: Literal["", "plain", "stream", "other"] = ""
        """Nothing is hidden in `other` ones: errors, and what is unknown. Empty until the head is whole."""
        self._held: list[bytes] = []
        """What waits until it is whole: the head, a plain answer, an event."""

    @property
    def framed(self) -> bool:
        """Whether its end is ours to tell."""
        return self._form in ("plain", "stream")

    def shown(self, data: bytes, reply: ReplyParser) -> bytes:
        """What goes on for `data`, which `reply` has read. UpstreamBroke if what is held does not end."""
        out = b""
        if not self._form:
            self._held.append(data)
            if not reply.head_done:
                return b""
            data = self._taken()
            self._form = _form(reply.head)
            if self._form == "stream":
                # The head goes out with the first events, so that a drain can write into it.
                out = reply.head.own + b"Transfer-Encoding: chunked\r\n\r\n"
        if self._form == "other":
            return data
        if self._form == "stream":
            out += _chunk(self._whole_events(reply.fresh))
        else:
            self._held.append(reply.fresh)
            if reply.size > _MAX_ANSWER:
                raise UpstreamBroke(f"an answer above {_MAX_ANSWER} bytes")
        return out + self.ending(reply) if reply.done else out

    def ending(self, reply: ReplyParser) -> bytes:
        """What is left when the answer is over."""
        if self._form == "plain":
            body = self._hidden.answer(self._taken())
            return b"%bContent-Length: %d\r\n\r\n%b" % (reply.head.own, len(body), body)
        if self._form == "stream":
            # An event without its end goes on as it is unless it may hold what is to be hidden.
            rest = self._taken()
            return _chunk(b"" if self._hidden.shown.search(rest) else rest) + b"0\r\n\r\n"
        return b""

    def _whole_events(self, fresh: bytes) -> bytes:
        """The events that are whole now, rewritten; the unfinished one waits."""
        data = self._taken() + fresh if self._held else fresh
        end = _last_end(data)
        if end < len(data):
            self._held.append(data[end:])
            if len(data) - end > _MAX_EVENT:
                raise UpstreamBroke(f"an event above {_MAX_EVENT} bytes")
        return self._hidden.events(data[:end])

    def _taken(self) -> bytes:
        data = b"".join(self._held)
        self._held.clear()
        return data


def _last_end(data: bytes) -> int:
    if data.endswith(b"\n\n"):
        return len(data)
    end, crlf = data.rfind(b"\n\n"), data.rfind(b"\r\n\r\n")
    return max(end + 2 if end >= 0 else 0, crlf + 4 if crlf >= 0 else 0)


def _chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body; none if it is empty, for that would be the body's end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _form(head: ReplyHead) -> Literal["plain", "stream", "other"]:
    kind = head.content_type.lower()
    if head.status != 200 or head.content_encoding:
        return "other"
    if kind.startswith("text/event-stream"):
        return "stream"
    return "plain" if kind.startswith("application/json") else "other"

"""What reads bytes from outside, each as one function of bytes: it returns, or raises what its own errors.py declares.

A target raises `AssertionError` where a promise is broken: a round trip, or that the pieces in which bytes come make no
difference. What else comes out of one is a crash. `run` looks for them.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from actors.messages import Exchange, MessageError, Step, ToolCall, Trajectory, decode, decode_batch, encode
from actors.messages.manifest import Manifest, bad_file
from actors.ports.errors import AdapterError, CheckpointRefused, LiveApiMalformed
from actors.ports.parsed_calls import offered
from actors.tool_results.runs import invalid
from actors.tool_results.tool_calls import calls_of
from actors.trajectories.parsed_exchange import read_turn
from adapters.engines.checkpoint import open_checkpoint
from adapters.intake.jsonl import from_line, to_line
from adapters.intake.otlp import wire
from adapters.intake.tap import read_call
from adapters.live.openapi import document
from adapters.redaction import RedactionSettings, Redactor
from daemon.errors import ConfigError
from daemon.settings import reading
from daemon.tap import token_fields
from daemon.tap.errors import Refused, UpstreamBroke
from daemon.tap.feedback import read_feedback
from daemon.tap.http import RequestParser
from daemon.tap.recorder_wire import Copied, decode_copied, encode_copied
from daemon.tap.reply import ReplyParser
from daemon.tap.spool import Record, SpoolReader, frame
from daemon.tap.token_fields import HiddenAnswer
from tests.unit.daemon.tap import made

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_MARK = b"12345678"
_ASKED = ("logprobs", "return_token_ids", "return_weight_versions")
_SPLIT = b"\x00\xff\x00"
"""Between the two bodies of one input."""


def http_request(data: bytes) -> None:
    """Requests of an agent, in one piece and byte by byte: the same ones, and both are refused or neither is.

    The reason may differ: of two faults the parser tells the one that it comes to first.
    """
    whole, torn = _requests([data]), _requests([data[i : i + 1] for i in range(len(data))])
    assert whole == torn, f"{whole} in one piece, {torn} byte by byte"


def _requests(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes, bytes]], bool]:
    parser = RequestParser(max_body_bytes=65536, clock=lambda: 0.0)
    refused = False
    try:
        for piece in pieces:
            parser.feed(piece)
    except Refused:
        refused = True
    return [(one.method, one.path, one.body) for one in parser.requests], refused


def http_response(data: bytes) -> None:
    """What an engine sends."""
    reply = ReplyParser()
    reply.begin(head_only=False, max_capture_bytes=65536)
    with contextlib.suppress(UpstreamBroke):
        reply.feed(data)
        if reply.done:
            reply.begin(head_only=False, max_capture_bytes=65536)
            reply.feed(data)
        reply.eof()


def hidden(data: bytes) -> None:
    """An engine's answer without what the tap asked for, as a stream and as a whole."""
    for kind, size in ((b"text/event-stream", 7), (b"application/json", max(1, len(data)))):
        reply, answer = ReplyParser(), HiddenAnswer(_ASKED)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(data))
        for piece in (head, *(data[start : start + size] for start in range(0, len(data), size))):
            reply.feed(piece)
            answer.shown(piece, reply)


def asked(data: bytes) -> None:
    """Fields that the tap adds to a request: a JSON object stays one, with all that it had."""
    try:
        before = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        before = None
    for path in PATHS:
        body, added = token_fields.asked(made.request(data, path.encode()), kept=True)
        assert added or body == data
        if isinstance(before, dict) and added:
            after = msgspec.json.decode(body)
            # Of a name that stands twice the last one counts, for engines as for this decoder.
            assert {name: value for name, value in after.items() if name not in added} == before, added


def feedback(data: bytes) -> None:
    """A post to /v1/feedback."""
    with contextlib.suppress(Refused):
        for one in read_feedback(data, "t", 0.0)[0]:
            assert decode(encode(one)) == one


def conversation(data: bytes) -> None:
    """A call in each dialect, plain and streamed: from the spool to the turn that the assembler sees."""
    request, _, response = data.partition(_SPLIT)
    for path in PATHS:
        for streamed in (False, True):
            copy = _copied(request, response, streamed=streamed, endpoint=path)
            assert decode_copied(encode_copied(Copied(copy))).record == copy
            exchange = read_call(copy)
            assert decode(encode(exchange)) == exchange
            read_turn(exchange)


def redaction(data: bytes) -> None:
    """A call without its secrets, and once more: what was taken out leaves nothing to find."""
    request, _, response = data.partition(_SPLIT)
    for streamed in (False, True):
        copy = _copied(request, response, streamed=streamed)
        clean = read_call(copy, _redactor(), encoding="gzip" if response[:2] == b"\x1f\x8b" else "")
        encode(clean)
        _redactor().message(clean)
    _redactor().text(data.decode("utf-8", "replace"))


def _copied(request: bytes, response: bytes, *, streamed: bool = False, endpoint: str = PATHS[0]) -> Exchange:
    return Exchange(
        id="x", endpoint=endpoint, request=request, response=response, status=200, streamed=streamed, started=1.0,
        duration=1.0,
    )  # fmt: skip


@cache
def _redactor() -> Redactor:
    return Redactor(RedactionSettings())


def otlp(data: bytes) -> None:
    """An export of traces, in both encodings, bare and compressed."""
    with contextlib.suppress(wire.Refused):
        wire.inflated(data, "gzip", 1 << 20)
    for media in (wire.JSON, wire.PROTOBUF):
        with contextlib.suppress(wire.Refused):
            wire.decode(media, data)


def jsonl(data: bytes) -> None:
    """A line of a file that is imported: what is split at line feeds has none."""
    data = data.replace(b"\n", b" ")
    with contextlib.suppress(AdapterError):
        for record in from_line(data, tenant="t", now=0.0):
            (back,) = from_line(to_line(record), tenant="t", now=0.0)
            assert encode(back) == encode(record)


def spool(data: bytes) -> None:
    """A segment: two whole records around anything at all are both found, in order."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        directory = Path(name)
        first, last = frame(Record(b"a" * 16, b"one"), _MARK), frame(Record(b"b" * 16, b"two"), _MARK)
        for number, written in enumerate((first + data + last, data)):
            (directory / f"{number:012d}-{_MARK.hex()}.seg").write_bytes(written)
        reader, found = SpoolReader(directory), list[bytes]()
        while records := reader.read():
            found += [one.payload for one in records]
        assert found[0] == b"one"
        if _MARK not in data:
            assert b"two" in found


def message(data: bytes) -> None:
    """A payload from NATS, and a batch file."""
    with contextlib.suppress(MessageError):
        found = decode(data)
        assert encode(decode(encode(found))) == encode(found)
    with contextlib.suppress(MessageError):
        decode_batch(data)


def manifest(data: bytes) -> None:
    """What a version's directory says of itself."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        bad_file(msgspec.json.decode(data, type=Manifest))


def safetensors(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        (Path(name) / "model.safetensors").write_bytes(data)
        with contextlib.suppress(CheckpointRefused):
            found = open_checkpoint(Path(name))
            for tensor in found.tensors:
                found.array(tensor).sum()


def settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        path = Path(name) / "config.toml"
        path.write_bytes(data)
        with contextlib.suppress(ConfigError):
            reading.load(path)
    with contextlib.suppress(ConfigError):
        reading.load(None, [data.decode("utf-8", "replace")])


def tool_results(data: bytes) -> None:
    """What tools answered, what they were asked, and which of them there were."""
    one, _, other = data.partition(_SPLIT)
    text, more = one.decode("utf-8", "replace"), other.decode("utf-8", "replace")
    step = Step(
        exchange_id="e", response_id="r", tool_calls=(ToolCall("f", text, "c"), ToolCall("g", more, "d")),
        observation=text, text=more,
    )  # fmt: skip
    run = Trajectory(id="t", goal=more, source="production", started=0.0, ended=1.0, steps=(step, step), tools=one)
    calls_of(run)
    invalid(step, offered(one))


def openapi(data: bytes) -> None:
    """A live API's document, JSON or YAML."""
    with contextlib.suppress(LiveApiMalformed):
        document.parse(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (
        http_request, http_response, hidden, asked, feedback, conversation, redaction, otlp, jsonl, spool, message,
        manifest, safetensors, settings, tool_results, openapi,
    )
}  # fmt: skip

_CHAT = {"model": "m", "messages": [{"role": "user", "content": "mail a@example.org, password=hunter22hunter"}]}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 12}'}}
_ANSWER = {
    "id": "r",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "x", "tool_calls": [_CALL]}}],
}
_EVENT = {"id": "r", "choices": [{"index": 0, "delta": {"content": "x"}, "token_ids": [1], "logprobs": None}]}
_STREAM = b"data: " + json.dumps(_EVENT).encode() + b"\n\ndata: [DONE]\n\n"
_RESPONSES = {"id": "r", "status": "completed", "output": [{"type": "message", "content": [{"text": "x"}]}]}


def seeds(target: str) -> list[bytes]:
    """What a mutation begins with: one well-formed input or two of each format."""
    chat, answer = json.dumps(_CHAT).encode(), json.dumps(_ANSWER).encode()
    exchange = Exchange(id="x", started=1.0, duration=1.0, status=200, endpoint="chat", request=chat, response=answer)
    told = json.dumps({"messages": [*_CHAT["messages"], {"role": "assistant", "content": "x"}]}).encode()
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "chat", "attributes": []}
    calls = [chat + _SPLIT + answer, chat + _SPLIT + _STREAM, chat + _SPLIT + json.dumps(_RESPONSES).encode()]
    found: dict[str, list[bytes]] = {
        "http_request": [
            b"POST /v1/feedback HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
            b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
            b"GET / HTTP/1.1\r\n\r\n",
        ],
        "http_response": [
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ],
        "hidden": [answer, _STREAM],
        "asked": [chat, b'{"logprobs":null, "evolved_tokens":{}}'],
        "feedback": [b'{"response_id":"r","outcome":1}', b'[{"custom_id":"c","step":0,"kind":"comment","text":"no"}]'],
        "conversation": calls,
        "redaction": calls,
        "otlp": [
            json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode(),
            b"\n\x04\x12\x02\n\x00",
        ],
        "jsonl": [told, json.dumps({**json.loads(told), "outcome": 1}).encode(), to_line(exchange)],
        "spool": [frame(Record(b"c" * 16, encode(exchange)), _MARK), encode(exchange)],
        "message": [encode(exchange)],
        "manifest": [
            b'{"version":1,"parent":0,"files":[{"name":"a","size":1,"sha256":""}],"tensors":{"w":["F32",[1]]}}'
        ],
        "safetensors": [len(header).to_bytes(8, "little") + header + b"\x00\x00\x80?"],
        "settings": [b'state_dir = "x"\n[tap]\nworkers = 1\n[shadow]\nurl = "http://a"\n', b"train.lr=1e-5"],
        "openapi": [b"openapi: 3.1.0\npaths:\n  /a: {get: {operationId: a}}\n", b'{"openapi": "3.0.0", "paths": {}}'],
        "tool_results": [b'[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]', b'{"a":1}'],
    }
    return found[target]

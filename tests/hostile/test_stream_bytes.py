"""A stream through the tap is the stream of the engine: byte for byte, event for event, each before the next is made.

What the tap asks for on its own account (token ids, log-probs) and hides again may leave one trace: `null` in a field
where the engine's own answer to the agent's own request has `null` or nothing.
"""

import gzip
import json
import re
import threading
from typing import Any

import pytest

from tests.hostile.conftest import Rig
from tests.support.patience import within
from tests.support.strict_engine import Line, Script, sends
from tests.support.wire import Client, Message, asks, chunk, sized

EXTRAS = ("logprobs", "return_token_ids", "return_weight_versions")
HIDDEN = re.compile(rb'"(?:token_ids|logprobs|prompt_token_ids|weight_versions)":null,?')
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
ODD = [
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null}]}\r\n\r\n',
    b": a comment\n\n",
    b":\r\n\r\n",
    b"event: ping\ndata: {}\n\n",
    b'id: 7\ndata: {"choices":\ndata: []}\n\n',
    b"retry: 100\n\n\n\n",
    b"data:no space\n\n",
    'data: {"choices":[{"delta":{"content":"é☃\\u2028 \\"token_ids\\": [1]"}}]}\n\n'.encode(),
    b'data: {"choices":[{"delta":{"content":"' + b"x" * 300_000 + b'"}}]}\n\n',
    b"data: not json\n\n",
    b"\xef\xbb\xbfdata: {}\n\n",
    b"data: \xff\xfe\n\n",
    b"data: [DONE]\n\n",
]
"""Events as no vLLM writes them, and some as it does."""


def request(
    *, stream: bool, extras: tuple[str, ...] = (), path: bytes = b"/v1/chat/completions", fields: tuple[bytes, ...] = ()
) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    told = json.dumps(body | dict.fromkeys(extras, True)).encode()
    return asks(path, told, b"Content-Type: application/json", *fields)


def vllm(asked: dict, *, words: int = 5, choices: int = 1, tools: bool = False) -> list[bytes]:
    """The events of a stream (or the one body of a plain answer) as vLLM writes them: compact JSON, and the fields of
    token ids and log-probs are `null` unless they were asked for."""

    def given(name: str, value: object) -> object:
        return value if asked.get(name) else None

    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    prompt = {"prompt_token_ids": given("return_token_ids", [7, 8, 9])}
    versions = {"weight_versions": given("return_weight_versions", [{"version": "3", "start": 0, "end": words}])}
    logprobs = [
        {"token": f"w{n} ", "logprob": -0.1250 * n, "bytes": [119, 48 + n], "top_logprobs": []} for n in range(words)
    ]

    def choice(index: int, said: dict, n: slice | None, finish: str | None) -> dict:
        tokens: dict = {"logprobs": None}
        if n is not None:
            tokens = {"logprobs": given("logprobs", {"content": logprobs[n]})}
            tokens |= {"token_ids": given("return_token_ids", list(range(words))[n])}
        return {"index": index, **said, **tokens, "finish_reason": finish, **(versions if finish else {})}

    if not asked["stream"]:
        message = {"role": "assistant", "content": 'w0 é \\ " w4 ', "refusal": None, "tool_calls": []}
        whole = [choice(index, {"message": message}, slice(None), "stop") for index in range(choices)]
        rest = {"usage": {"total_tokens": 9}, "prompt_logprobs": None} | prompt
        return [dumps(base | {"object": "chat.completion", "choices": whole} | rest)]
    function = {"name": "f", "arguments": '{"logprobs": [1], "token_ids": 2}'}
    call = {"tool_calls": [{"index": 0, "id": "call_0", "function": function}]}
    opening = {"delta": {"role": "assistant", "content": ""}}
    events = [base | {"choices": [choice(index, opening, None, None)]} | prompt for index in range(choices)]
    for n in range(words):
        delta = {"delta": call if tools else {"content": f'w{n} é \u2028 " '}}
        last = "stop" if n == words - 1 else None
        events += [base | {"choices": [choice(index, delta, slice(n, n + 1), last)]} for index in range(choices)]
    events.append(base | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": words}})
    return [b"data: " + dumps(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


def dumps(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def streams(events: list[bytes], *fields: bytes) -> Script:
    """A script that writes these events, a chunk each."""
    head = b"\r\n".join((HEAD.removesuffix(b"\r\n\r\n"), *fields, b"", b""))
    return sends(head + b"".join(map(chunk, events)) + b"0\r\n\r\n")


def like_vllm(**options: Any) -> Script:
    """A script that answers as vLLM does, to what it is asked."""

    def script(asked: Message, line: Line) -> bool:
        wanted = asked.json
        pieces = vllm(wanted, **options)
        if wanted["stream"]:
            line.send(HEAD, *map(chunk, pieces), b"0\r\n\r\n")
        else:
            line.send(sized(pieces[0], b"Content-Type: application/json"))
        return True

    return script


def body_of(port: int, sent: bytes) -> bytes:
    with Client(port) as client:
        client.send(sent)
        return client.response().body


def shown(data: bytes) -> bytes:
    """Without fields that are `null`."""
    return re.sub(rb",(?=[}\]])", b"", HIDDEN.sub(b"", data))


ASKED_ALL = {"stream": True} | dict.fromkeys(EXTRAS, True)
TOLD, SHOWN = vllm(ASKED_ALL), shown(b"".join(vllm({"stream": True})))
"""What the engine says when it is asked for all, and what an agent sees of it who asked for none."""
FRAMING = (b"transfer-encoding", b"content-length")


# -- which bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tool calls"])
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize(
    "extras",
    [EXTRAS, (), ("logprobs",), ("return_token_ids",), ("return_weight_versions",), ("logprobs", "return_token_ids")],
    ids=["all", "nothing", "log-probs", "ids", "versions", "log-probs and ids"],
)
def test_an_agent_sees_what_the_engine_would_have_said_to_it(
    rig: Rig, extras: tuple[str, ...], stream: bool, choices: int, tools: bool
) -> None:
    rig.engine.script = like_vllm(choices=choices, tools=tools)
    sent = request(stream=stream, extras=extras)
    got, direct = body_of(rig.tap.port, sent), body_of(rig.engine.port, sent)
    assert shown(got) == shown(direct)
    through, plain = (asked.json for asked in rig.engine.asked)
    assert through.keys() >= set(EXTRAS), "else there was nothing to hide"
    if extras == EXTRAS:
        assert (got, through) == (direct, plain), "every byte: there was nothing to add, and nothing to hide"


@pytest.mark.parametrize("odd", [*ODD, b"".join(ODD)], ids=[*(repr(one[:24]) for one in ODD), "all"])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/responses", b"/v1/messages"])
def test_events_of_any_form_pass(rig: Rig, path: bytes, odd: bytes) -> None:
    """Tokens are asked for, so chunks may be cut otherwise; the bytes in them are the engine's."""
    rig.engine.script = streams([odd])
    assert body_of(rig.tap.port, request(stream=True, path=path)) == odd


@pytest.mark.parametrize("path", [b"/v1/messages/count_tokens", b"/v1/embeddings", b"/v1/x"])
def test_where_nothing_is_asked_for_every_byte_passes(rig: Rig, path: bytes) -> None:
    rig.engine.script = streams(ODD)
    sent = request(stream=True, path=path)
    with rig.client() as client, Client(rig.engine.port) as direct:
        client.send(sent)
        direct.send(sent)
        got, wanted = client.response(), direct.response()
        assert got.body == wanted.body == b"".join(ODD)
        assert bytes(client.reader.raw) == bytes(direct.reader.raw), "chunks and headers as well"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("extras", [EXTRAS, ()], ids=["asked for", "hidden"])
def test_a_compressed_answer_passes_as_it_is(rig: Rig, extras: tuple[str, ...], stream: bool) -> None:
    """An engine may compress without being asked; and what one asked for must not be unpacked on the way."""
    packed = gzip.compress(b"".join(vllm({"stream": stream})), mtime=0)
    kind = b"text/event-stream" if stream else b"application/json"
    rig.engine.script = sends(sized(packed, b"Content-Encoding: gzip", b"Content-Type: " + kind))
    with rig.client() as client:
        client.send(request(stream=stream, extras=extras, fields=(b"Accept-Encoding: gzip",)))
        got = client.response()
    assert (got.body, got.one(b"content-encoding")) == (packed, b"gzip")
    assert rig.engine.asked[0].all(b"accept-encoding") == ([b"gzip"] if extras else [])


def test_headers_of_a_hidden_answer_are_the_engines(rig: Rig) -> None:
    """All but the framing, in their order and their case."""
    fields = (b"X-Request-Id: 1", b"x-Odd-CASE: \xe9", b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"Server: uvicorn")
    rig.engine.script = streams(TOLD, *fields)
    found = []
    for port in (rig.tap.port, rig.engine.port):
        with Client(port) as client:
            client.send(request(stream=True))
            found.append([one for one in client.response().fields if one.name.lower() not in FRAMING])
    assert found[0] == found[1]


# -- pieces and their time ---------------------------------------------------------------------------------------------


def test_head_and_events_arrive_before_the_next_is_made(rig: Rig) -> None:
    """A client with a short time-out for the headers must not wait for a long prefill."""
    turn = threading.Semaphore(0)

    def script(asked: Message, line: Line) -> bool:
        for piece in (HEAD, *map(chunk, TOLD)):
            line.send(piece)
            if not turn.acquire(timeout=within()):
                return False
        line.send(b"0\r\n\r\n")
        return True

    rig.engine.script = script
    with rig.client() as client:
        client.send(request(stream=True))
        for number in range(len(TOLD) + 1):
            while b"\r\n\r\n" not in client.reader.raw or body_so_far(client).count(b"\n\n") < number:
                assert client.reader.more(), "the stream ended early"
            assert body_so_far(client).count(b"\n\n") == number, "an event that was not made yet"
            turn.release()
        assert shown(client.response().body) == SHOWN


def body_so_far(client: Client) -> bytes:
    return bytes(client.reader.raw).partition(b"\r\n\r\n")[2]

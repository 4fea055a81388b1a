"""A small HTTP engine for tests of whoever calls one: real sockets, scripted answers, and no parser of ours in it."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

from tests.support.answers import streamed

EVENTS = 6


class Asked:
    """A request as the engine got it."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.line, *lines = head.split(b"\r\n")
        self.headers = {k.lower().decode(): v.strip().decode() for k, _, v in (line.partition(b":") for line in lines)}
        self.body = body

    @property
    def json(self) -> dict:
        return json.loads(self.body)


Script = Callable[["Engine", Asked, ByteStream], Awaitable[bool]]
"""Writes an answer; True if the connection goes on."""


class Engine:
    """Answers like an OpenAI-compatible server, or as `script` says."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: Script = openai_like
        self.dialled = 0
        self.called = anyio.Event()
        """Set as soon as a request is there."""
        self.left = anyio.Event()
        """Set as soon as a caller has closed its connection."""
        self.gate = anyio.Event()
        """Scripts may wait for it."""
        self.port = 0

    async def serve(self, stream: ByteStream) -> None:
        self.dialled += 1
        buffered = BufferedByteReceiveStream(stream)
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                while True:
                    head = await buffered.receive_until(b"\r\n\r\n", 1 << 20)
                    asked = Asked(head, b"")
                    asked.body = await buffered.receive_exactly(int(asked.headers.get("content-length", "0")))
                    self.asked.append(asked)
                    self.called.set()
                    if not await self.script(self, asked, stream):
                        return
            self.left.set()


@contextlib.asynccontextmanager
async def running_engine(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Engine]:
    """An engine on loopback, gone at the end together with its connections."""
    engine = Engine()
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port, reuse_port=True)
    engine.port = plain.extra(SocketAttribute.local_port)
    listener = TLSListener(plain, tls, standard_compatible=False) if tls else plain
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, engine.serve)
        yield engine
        group.cancel_scope.cancel()


def replies(data: bytes | Callable[[Asked], bytes], *, goes_on: bool = True) -> Script:
    """A script: these bytes whatever is asked, or those that are made of it."""

    async def script(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        await stream.send(data if isinstance(data, bytes) else data(asked))
        return goes_on

    return script


async def openai_like(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
    """A chat completion, streamed if asked for, or the engine's own complaint about the body."""
    if asked.line.startswith(b"GET"):
        await stream.send(answer(200, {"object": "list", "data": []}))
        return True
    try:
        wanted = asked.json
        wanted["messages"]
    except (ValueError, KeyError, TypeError) as error:
        await stream.send(answer(400, {"error": {"message": f"engine: {error!r}", "type": "BadRequestError"}}))
        return True
    if wanted.get("stream"):
        await stream.send(STREAM_HEAD)
        for piece in stream_pieces(tokens="return_token_ids" in wanted):
            await stream.send(chunk(piece))
            await anyio.sleep(0.001)
        await stream.send(b"0\r\n\r\n")
        return True
    await stream.send(answer(200, completion(tokens="return_token_ids" in wanted)))
    return True


def answer(status: int, body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        len(data),
        data,
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def completion(*, tokens: bool) -> dict:
    """A whole response; `tokens` with what vLLM adds when it is asked."""
    message = {"role": "assistant", "content": "w0 w1 w2 w3 w4 w5 "}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    body = {"id": "chatcmpl-plain", "object": "chat.completion", "created": 1, "model": "desk", "choices": [choice]}
    if tokens:
        spans = [{"version": "3", "start": 0, "end": 2}, {"version": "4", "start": 2, "end": EVENTS}]
        choice |= {**_told(0, EVENTS), "weight_versions": spans}
        body["prompt_token_ids"] = [7, 8, 9]
    return body


def stream_pieces(*, tokens: bool) -> list[bytes]:
    """The events of the same response as a stream."""
    choices = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    for n in range(EVENTS):
        told = _told(n, n + 1) if tokens else {}
        choices.append({"index": 0, "delta": {"content": f"w{n} "}, "finish_reason": None, **told})
    choices[-1]["finish_reason"] = "stop"
    base = {"id": "chatcmpl-stream", "object": "chat.completion.chunk", "created": 1, "model": "desk"}
    events = [{**base, "choices": [choice]} for choice in choices]
    if tokens:
        choices[-1]["weight_versions"] = [{"version": "3", "start": 0, "end": EVENTS}]
        events[0]["prompt_token_ids"] = [7, 8, 9]
    return streamed(events)


def _told(start: int, end: int) -> dict:
    """Ids and log-probs of some of the words."""
    entries = [{"token": f"w{n} ", "logprob": -0.5 * n, "bytes": None} for n in range(start, end)]
    return {"token_ids": list(range(start, end)), "logprobs": {"content": entries}}

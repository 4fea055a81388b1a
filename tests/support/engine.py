"""A small HTTP engine for tests of whoever calls one: real sockets, scripted answers, and no parser of ours in it."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

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
async def running_engine(port: int = 0) -> AsyncIterator[Engine]:
    """An engine on loopback, gone at the end together with its connections."""
    engine = Engine()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port, reuse_port=True)
    engine.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, engine.serve)
        yield engine
        group.cancel_scope.cancel()


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
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "w0 w1 w2 w3 w4 w5 "},
        "finish_reason": "stop",
        "logprobs": None,
    }
    body = {"id": "chatcmpl-plain", "object": "chat.completion", "created": 1, "model": "desk", "choices": [choice]}
    if tokens:
        choice["token_ids"] = list(range(EVENTS))
        choice["logprobs"] = {
            "content": [{"token": f"w{n} ", "logprob": -0.5 * n, "bytes": None} for n in range(EVENTS)]
        }
        choice["weight_versions"] = [
            {"version": "3", "start": 0, "end": 2},
            {"version": "4", "start": 2, "end": EVENTS},
        ]
        body["prompt_token_ids"] = [7, 8, 9]
    return body


def stream_pieces(*, tokens: bool) -> list[bytes]:
    """The events of the same response as a stream."""
    base = {"id": "chatcmpl-stream", "object": "chat.completion.chunk", "created": 1, "model": "desk"}
    first = {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    if tokens:
        first["prompt_token_ids"] = [7, 8, 9]
    events = [first]
    for n in range(EVENTS):
        choice = {"index": 0, "delta": {"content": f"w{n} "}, "finish_reason": "stop" if n == EVENTS - 1 else None}
        if tokens:
            choice["token_ids"] = [n]
            choice["logprobs"] = {"content": [{"token": f"w{n} ", "logprob": -0.5 * n, "bytes": None}]}
            if n == EVENTS - 1:
                choice["weight_versions"] = [{"version": "3", "start": 0, "end": EVENTS}]
        events.append({**base, "choices": [choice]})
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]

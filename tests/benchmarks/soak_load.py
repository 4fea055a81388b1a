"""The load of `tests.benchmarks.soak`: an engine that now and then dies, and good and bad agents in a fixed mix."""

import json
import random
import threading
import time
from collections import Counter

from tests.support.strict_engine import Asked, Line
from tests.support.wire import Client, Cut, chunk, sized

WORDS = 12
PACE = 0.004
"""Seconds between a stream's events."""
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Unexpected(Exception):
    """An answer that this load must not get."""


def answer(asked: Asked, line: Line) -> bool:
    """Answers a call, or dies over it if its header says so."""
    fate = asked.message.one(b"x-fate")
    if fate == b"dies at once":
        return False
    wanted = json.loads(asked.body or b"{}") if asked.body[:1] == b"{" else {}
    if not wanted.get("stream"):
        line.send(sized(_plain(len(asked.body)), b"Content-Type: application/json"))
        return True
    line.send(STREAM)
    for number in range(WORDS):
        if fate == b"dies in mid-stream" and number == WORDS // 2:
            return False
        choice = {
            "index": 0, "delta": {"content": f"w{number} "}, "token_ids": [number],
            "logprobs": {"content": [{"token": "w", "logprob": -0.5}]}, "finish_reason": None,
        }  # fmt: skip
        line.send(chunk(b"data: " + json.dumps({"id": "chatcmpl-s", "choices": [choice]}).encode() + b"\n\n"))
        time.sleep(PACE)
    line.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def _plain(size: int) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "w " * 300}, "token_ids": list(range(300))}
    return json.dumps({"id": "chatcmpl-p", "choices": [choice], "asked": size}).encode()


# -- the agents ----------------------------------------------------------------------------------------------------


class Load:
    """The kinds of agent; each is a method that returns when its agent has gone."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port, self._rng = port, rng
        self._kept: Client | None = None
        """A keep-alive connection for the well-behaved."""

    def plain(self) -> None:
        """A call over the connection that is kept."""
        client = self._keep()
        client.send(_chat(self._rng))
        self._expect(client, 200)

    def stream(self) -> None:
        """A stream, read to its end."""
        client = self._keep()
        client.send(_chat(self._rng, stream=True))
        body = self._expect(client, 200)
        if body.count(b"data: ") != WORDS + 1 or b'"token_ids":[' in body:
            raise Unexpected(f"stream: {body[:200]!r}")

    def pipelined(self) -> None:
        """Ten requests at once."""
        with self._fresh() as client:
            client.send(b"".join(_chat(self._rng) for _ in range(10)))
            for _ in range(10):
                self._expect(client, 200)

    def abort(self) -> None:
        """Leaves in mid-stream, politely or not."""
        client = self._fresh()
        client.send(_chat(self._rng, stream=True))
        if self._rng.random() < 0.8:
            client.reader.more()
        client.reset() if self._rng.random() < 0.5 else client.close()

    def slow_reader(self) -> None:
        """Reads a stream in small pieces."""
        with self._fresh(receive_buffer=4096) as client:
            client.send(_chat(self._rng, stream=True))
            for _ in range(10):
                client.reader.buffer += client.sock.recv(64)
                time.sleep(0.05)

    def slow_writer(self) -> None:
        """Sends a byte now and then until it is cut, or gives up."""
        with self._fresh() as client:
            for byte in _chat(self._rng)[: self._rng.randrange(5, 60)]:
                client.send(bytes([byte]))
                time.sleep(0.05)

    def idle(self) -> None:
        """Connects and says nothing for a while."""
        with self._fresh():
            time.sleep(self._rng.random() * 2)

    def upload(self) -> None:
        """Half a megabyte to a megabyte in chunks."""
        with self._fresh() as client:
            client.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\nTransfer-Encoding: chunked\r\n\r\n")
            pieces = self._rng.randrange(8, 16)
            for _ in range(pieces):
                client.send(chunk(b"x" * 65_536))
            client.send(b"0\r\n\r\n")
            if json.loads(self._expect(client, 200))["asked"] != pieces * 65_536:
                raise Unexpected("upload: another size")

    def broken_upload(self) -> None:
        """Leaves in mid-upload."""
        with self._fresh() as client:
            client.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\nContent-Length: 900000\r\n\r\n" + b"x" * 600_000)

    def oversized(self) -> None:
        """A header or a body above the limit."""
        with self._fresh() as client:
            if self._rng.random() < 0.5:
                client.send(b"GET /v1/models HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n")
                self._expect(client, 431)
            else:
                client.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\nContent-Length: 99999999\r\n\r\n")
                self._expect(client, 413)

    def malformed(self) -> None:
        """What no parser should take."""
        with self._fresh() as client:
            client.send(self._rng.choice(MALFORMED))
            self._expect(client, 400, 501)

    def forbidden(self) -> None:
        """A path of the admin plane."""
        client = self._keep()
        client.send(b"POST /pause HTTP/1.1\r\nHost: tap\r\nContent-Length: 2\r\n\r\n{}")
        self._expect(client, 404)

    def feedback(self) -> None:
        """An outcome, or nonsense."""
        client = self._keep()
        good = self._rng.random() < 0.7
        body = json.dumps(
            {"response_id": f"r-{self._rng.random()}", "outcome": 1} if good else {"outcome": "x"}
        ).encode()
        client.send(b"POST /v1/feedback HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        self._expect(client, 202 if good else 422)

    def engine_dies(self) -> None:
        """The engine closes before or in the middle of its answer."""
        at_once = self._rng.random() < 0.5
        with self._fresh() as client:
            client.send(_chat(self._rng, stream=True, fate=b"dies at once" if at_once else b"dies in mid-stream"))
            try:
                self._expect(client, 502)
            except Cut:
                if at_once:
                    raise Unexpected("closed without 502") from None

    def run(self, name: str) -> None:
        """One agent of the kind `name`.

        Raises:
            Unexpected, Cut, OSError: the tap did what it should not.
        """
        try:
            getattr(self, name)()
        except BaseException:
            self._drop()
            raise

    def _expect(self, client: Client, *statuses: int) -> bytes:
        got = client.response()
        client.reader.raw.clear()
        if got.status not in statuses:
            raise Unexpected(f"{got.status} instead of {statuses}: {got.body[:200]!r}")
        return got.body

    def _fresh(self, **options: int) -> Client:
        return Client(self._port, timeout=10, **options)

    def _keep(self) -> Client:
        # The tap closes what has been idle for long; an agent's HTTP library would look before it sends.
        if self._kept is not None and _closed(self._kept):
            self._drop()
        if self._kept is None:
            self._kept = self._fresh()
        return self._kept

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _closed(client: Client) -> bool:
    client.sock.setblocking(False)
    try:
        return not client.sock.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        client.sock.settimeout(10)


MIX = {
    "plain": 40, "stream": 16, "pipelined": 3, "abort": 8, "slow_reader": 3, "slow_writer": 2, "idle": 2, "upload": 2,
    "broken_upload": 2, "oversized": 4, "malformed": 6, "forbidden": 3, "feedback": 5, "engine_dies": 4,
}  # fmt: skip
"""Shares of the kinds."""
MALFORMED = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    b"GET /v1/models HTTP/1.1\r\nA : b\r\n\r\n",
    b"GET /v1/models HTTP/1.1\nHost: tap\n\n",
    b"POST /v1/x HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/x HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
)


def _chat(rng: random.Random, *, stream: bool = False, fate: bytes = b"") -> bytes:
    messages = [{"role": "user", "content": "u" * rng.randrange(10, 4000)}]
    body = json.dumps({"model": "m", "stream": stream, "messages": messages}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: tap\r\nX-Fate: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        fate, len(body), body,
    )  # fmt: skip


class Agents:
    """Threads that send the mix at a rate, each kind of surprise counted and the first few kept."""

    def __init__(self, port: int, *, rate: float, threads: int, seed: int) -> None:
        """
        Args:
            rate: agents a second, together.
        """
        self.done: Counter[str] = Counter()
        self.surprises: Counter[str] = Counter()
        self.examples: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(Load(port, rng := random.Random(seed + n)), rng, rate / threads))
            for n in range(threads)
        ]

    def __enter__(self) -> "Agents":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _work(self, load: Load, rng: random.Random, rate: float) -> None:
        kinds, weights = list(MIX), list(MIX.values())
        while not self._stop.wait(rng.expovariate(rate)):
            (kind,) = rng.choices(kinds, weights)
            try:
                load.run(kind)
                self.done[kind] += 1
            except Exception as error:
                self.surprises[kind] += 1
                if len(self.examples) < 10:
                    self.examples.append(f"{kind}: {error!r}")

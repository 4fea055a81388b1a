"""The whole way of the data in real processes: agents, tap, spool, nats-server, daemon, SQLite; no learning."""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import sqlalchemy.exc

from daemon.demo.world import answers
from tests.benchmarks.native import Native
from tests.support.installation import Tapped
from tests.support.patience import until, within

TURNS = 4
"""Calls of one run."""
_ID = re.compile(rb'"id":"([^"]+)"')
_POST = b"POST /v1/%b HTTP/1.1\r\nHost: tap\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Agents:
    """Talks to the tap over keep-alive connections: runs of four calls, plain and streamed in turn, then feedback."""

    def __init__(self, port: int, goal: str = "book a flight to Oslo", **options: object) -> None:
        self._port, self._goal, self._options = port, goal, options
        self.runs: list[list[str]] = []
        """Response ids of each run."""
        self.errors: Counter[str] = Counter()
        self.calls = 0
        self._enough = False

    async def talk(self, calls: int, *, connections: int = 16, per_second: float = 0.0) -> None:
        """Make `calls` calls, at most `per_second` of them if that is not 0."""
        began, started = time.monotonic(), self.calls
        left = calls // TURNS
        self._enough = False

        async def work() -> None:
            nonlocal left
            async with self._connection() as (reader, writer):
                while left > 0 and not self._enough:
                    left -= 1
                    await self._run(reader, writer, lambda: pause())

        async def pause() -> None:
            if per_second:
                due = began + (self.calls - started) / per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        await asyncio.gather(*(work() for _ in range(connections)))

    def enough(self) -> None:
        """Finish the runs that are under way, and begin none."""
        self._enough = True

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: Callable[[], "asyncio.Future[None]"]
    ) -> None:
        ids: list[str] = []
        number = len(self.runs)
        self.runs.append(ids)
        messages = [{"role": "user", "content": f"run {number}: {self._goal}"}]
        for turn in range(TURNS):
            await pause()
            body = {"model": "bench", "messages": messages, "stream": turn % 2 == 1, **self._options}
            answer = await self._call(reader, writer, b"chat/completions", body)
            self.calls += 1
            found = _ID.search(answer)
            if found is None:
                self.errors["no id"] += 1
                return
            ids.append(found[1].decode())
            text = _text(answer)
            messages = [*messages, {"role": "assistant", "content": text}]
            messages.append({"role": "user", "content": f"and then? {turn}"})
        await self._call(reader, writer, b"feedback", {"response_id": ids[-1], "outcome": number % 2})

    async def _call(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: bytes, body: dict[str, object]
    ) -> bytes:
        data = json.dumps(body).encode()
        writer.write(_POST % (path, len(data)) + data)
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)[1]
        if status not in (b"200", b"202"):
            self.errors[status.decode()] += 1
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if length is not None:
            return await reader.readexactly(int(length[1]))
        parts: list[bytes] = []
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return b"".join(parts)


def _text(answer: bytes) -> str:
    if answer.startswith(b"{"):
        return json.loads(answer)["choices"][0]["message"]["content"]
    events = [json.loads(line[6:]) for line in answer.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


class Pipeline(Tapped):
    """Broker, tap and daemon in one directory, before the compiled engine."""

    def __init__(self, directory: Path, engine: int, **overrides: object) -> None:
        url = f"http://127.0.0.1:{engine}"
        super().__init__(directory, engines={"url": url}, shadow={"url": url})
        self.configure(**overrides)
        self.daemon = self.child("run", "run")

    async def start_daemon(self) -> None:
        """Start the daemon, and wait until its actors are at work."""
        self.daemon.start()
        control = f"http://127.0.0.1:{self.ports['control']}/api/status"
        await until(lambda: asyncio.to_thread(answers, control), "the daemon answers", 120)

    def nats(self, number: int) -> None:
        """Send a signal to nats-server, which `evolved broker` has become."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.config.state / "broker" / "nats.pid").read_text()), number)

    def check(self) -> None:
        """Start again what died."""
        for child in (self.broker, self.tap, self.daemon):
            child.check()

    def stop(self) -> None:
        self.nats(signal.SIGCONT)
        for child in (self.daemon, self.tap, self.broker):
            child.signal(signal.SIGCONT)
            child.stop(within())

    def rows(self) -> int:
        """Exchanges in the store, 0 while it is not made yet."""
        try:
            return (
                self.ask("SELECT count(*) FROM exchanges")[0][0] if (self.config.state / "evolved.db").exists() else 0
            )
        except sqlalchemy.exc.OperationalError:
            return 0

    def stitched(self) -> int:
        """Exchanges in a closed trajectory."""
        return self.ask("SELECT count(*) FROM exchanges WHERE trajectory_id <> ''")[0][0]


@contextlib.asynccontextmanager
async def pipeline(directory: Path, *, daemon: bool = True, **overrides: object) -> AsyncIterator[Pipeline]:
    """A running pipeline, gone at the end."""
    with Native(Path("build/native")).engine() as engine:
        running = Pipeline(directory, engine, **overrides)
        try:
            await running.start_tap()
            if daemon:
                await running.start_daemon()
            yield running
        finally:
            await asyncio.to_thread(running.stop)

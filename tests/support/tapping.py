"""A tap between real clients and a real HTTP engine, in the test's own process."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import anyio

from actors.messages import Feedback
from actors.messages.spool import RawExchange, decode_spooled
from daemon.tap.server import Bound, Tap
from daemon.tap.settings import TapSettings
from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import Asked, Engine

NO_REDACTION = {"enabled": False}
BODY = {"model": "desk", "messages": [{"role": "user", "content": "hello"}]}


class Rig:
    """A tap before an engine, and a way to look into its spool."""

    def __init__(self, tap: Tap, bound: Bound, spool: Path, scheme: str) -> None:
        self.tap, self.bound, self.spool = tap, bound, spool
        self.url = f"{scheme}://127.0.0.1:{bound.port}"
        self.admin = f"http://127.0.0.1:{bound.admin_port}"
        self._reader = SpoolReader(spool)

    async def records(self, wanted: int = 1) -> list[RawExchange | Feedback]:
        """The next `wanted` records of the spool, and no more than those."""
        found = []
        with anyio.fail_after(15):
            while len(found) < wanted:
                found += [decode_spooled(record.payload) for record in self._reader.read()]
                await anyio.sleep(0.005)
        assert len(found) == wanted
        return found

    async def records_until(self, distinct: int) -> list[RawExchange | Feedback]:
        """Records until there are so many ids; a recorder's successor may write one twice."""
        found: dict[str, RawExchange | Feedback] = {}
        with anyio.fail_after(20):
            while len(found) < distinct:
                fresh = [decode_spooled(record.payload) for record in self._reader.read()]
                found |= {record.id: record for record in fresh}
                await anyio.sleep(0.005)
        return list(found.values())

    async def nothing_kept(self) -> None:
        await anyio.sleep(0.1)
        assert self._reader.read() == []


@contextlib.asynccontextmanager
async def running_tap(
    directory: Path, port: int, *, redaction: Mapping[str, object] = NO_REDACTION, **settings: object
) -> AsyncIterator[Rig]:
    """A tap on free ports before an engine on `port`."""
    spool = directory / "spool"
    told = TapSettings(
        **{"port": 0, "admin_port": 0, "spool_dir": str(spool), "upstream": f"http://127.0.0.1:{port}", **settings}
    )
    tap, stop = Tap(told, dict(redaction)), anyio.Event()
    async with anyio.create_task_group() as group:
        bound = await group.start(lambda *, task_status: tap.run(stop, task_status))
        yield Rig(tap, bound, spool, "https" if told.tls_cert else "http")
        stop.set()


@contextlib.asynccontextmanager
async def raw(rig: Rig) -> AsyncIterator[anyio.abc.SocketStream]:
    port = int(rig.url.rpartition(":")[2])
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield stream


async def read_all(stream: anyio.abc.ByteStream) -> bytes:
    data = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(5):
        while True:
            data += await stream.receive()
    return data


def post(body: bytes = json.dumps(BODY).encode(), *headers: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    lines = [b"POST %s HTTP/1.1" % path, b"Host: tap", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


async def hang(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
    """Say nothing until the caller leaves."""
    await stream.receive()
    return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, for five seconds at most."""
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - there is no event for what others see
            await anyio.sleep(0.01)

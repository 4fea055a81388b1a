"""A tap between real clients and a real HTTP engine, in the test's own process."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anyio
import httpx

from actors.messages import Exchange, Feedback, decode
from daemon.tap.server import Bound, Tap
from daemon.tap.settings import TapSettings, UpstreamSettings
from daemon.tap.spool import SpoolReader
from tests.support.engine import Asked, Engine
from tests.support.patience import until, within

NO_REDACTION = {"kinds": ()}
BODY = {"model": "desk", "messages": [{"role": "user", "content": "hello"}]}


class Rig:
    """A tap before an engine, and a way to look into its spool."""

    def __init__(self, tap: Tap, bound: Bound, spool: Path, scheme: str, stop: anyio.Event) -> None:
        self.tap, self.bound, self.spool, self.stop = tap, bound, spool, stop
        self.url = f"{scheme}://127.0.0.1:{bound.port}"
        self.admin = f"http://127.0.0.1:{bound.admin_port}"
        self._reader = SpoolReader(spool)

    def http(self, url: str = "") -> httpx.AsyncClient:
        """An agent; with `url` a client of another door of the tap."""
        return httpx.AsyncClient(base_url=url or self.url, timeout=within())

    async def records(self, wanted: int = 1) -> list[Exchange | Feedback]:
        """The next `wanted` records of the spool, and no more than those."""
        found: list[Exchange | Feedback] = []

        def enough() -> bool:
            found.extend(self._written())
            return len(found) >= wanted

        await until(enough, f"{wanted} records in the spool", every=0.005)
        assert len(found) == wanted
        return found

    async def records_until(self, distinct: int) -> list[Exchange | Feedback]:
        """Records until there are so many ids; a recorder's successor may write one twice."""
        found: dict[str, Exchange | Feedback] = {}

        def enough() -> bool:
            found.update((record.id, record) for record in self._written())
            return len(found) >= distinct

        await until(enough, f"records of {distinct} ids in the spool", every=0.005)
        return list(found.values())

    async def nothing_kept(self) -> None:
        """What was asked until now leaves no record: the spool is in order, and the next one is of what is told now."""
        async with self.http() as http:
            told = await http.post("/v1/feedback", json={"response_id": "marker", "outcome": 1})
        assert told.status_code == 202
        assert [record.id for record in await self.records()] == [told.json()["id"]], "a call before it was kept"

    def _written(self) -> list[Exchange | Feedback]:
        found = [decode(record.payload) for record in self._reader.read()]
        return [record for record in found if isinstance(record, Exchange | Feedback)]


def engines_at(port: int) -> tuple[UpstreamSettings, ...]:
    """The one engine on `port`."""
    return (UpstreamSettings(url=f"http://127.0.0.1:{port}"),)


@contextlib.asynccontextmanager
async def running_tap(
    directory: Path, port: int, *, redaction: Mapping[str, object] = NO_REDACTION, **settings: object
) -> AsyncIterator[Rig]:
    """A tap on free ports before an engine on `port`."""
    told = TapSettings(
        **{
            "port": 0, "admin_port": 0, "spool_dir": str(directory / "spool"),
            "upstreams": engines_at(port), **settings,
        }
    )  # fmt: skip
    tap, stop = Tap(told, dict(redaction)), anyio.Event()
    async with anyio.create_task_group() as group:
        bound = await group.start(lambda *, task_status: tap.run(stop, task_status.started))
        yield Rig(tap, bound, tap.place.directory, "https" if told.tls_cert else "http", stop)
        stop.set()
    assert tap._proxy.copies.taken == 0, "what was copied of answers is let go"


@contextlib.asynccontextmanager
async def raw(rig: Rig, port: int = 0) -> AsyncIterator[anyio.abc.SocketStream]:
    async with await anyio.connect_tcp("127.0.0.1", port or rig.bound.port) as stream:
        yield stream


async def read_all(stream: anyio.abc.ByteStream) -> bytes:
    data = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(within()):
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

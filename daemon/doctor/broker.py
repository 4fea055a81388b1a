"""The broker: is it there, does it let us in, has it JetStream?"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec

from actors.system.access import Access, GuardedClient
from actors.system.connection import CONNECTION_ERRORS
from actors.system.errors import BrokerFailed
from daemon.doctor.base import CALL_SECONDS, Check, Finding, Scene, aside, fault
from daemon.processes.bus_connection import access


async def _greeting(host: str, port: int) -> dict[str, Any]:
    """INFO, which nats-server sends to whoever connects, before anybody logs in.

    Raises:
        OSError: nobody listens.
        ValueError: no nats-server.
    """
    data = b""
    with anyio.fail_after(CALL_SECONDS):
        async with await anyio.connect_tcp(host, port) as stream:
            while b"\r\n" not in data and len(data) < 1 << 16:
                data += await stream.receive()
    if not data.startswith(b"INFO "):
        raise ValueError("no nats-server")
    return dict(msgspec.json.decode(data[5 : data.index(b"\r\n")]))


async def _reach(scene: Scene) -> Sequence[Finding]:
    own = not scene.config.nats.url
    start = "start it: systemctl start evolved-broker, or evolved broker" if own else "start it, or set nats.url"
    try:
        way = await aside(access, scene.config)
    except BrokerFailed:
        return [
            fault(f"no broker has ever run with {scene.config.state / 'broker'}", start + "; or name yours: nats.url")
        ]
    found: list[Finding] = []
    for one in map(urlsplit, way.servers):
        where = f"{one.hostname}:{one.port or 4222}"
        try:
            info = await _greeting(str(one.hostname), one.port or 4222)
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            found.append(fault(f"the broker does not answer at {where}", start))
            continue
        except (ValueError, msgspec.DecodeError):
            found.append(fault(f"{where} is no nats-server", "set nats.url to where yours is"))
            continue
        if not info.get("jetstream"):
            found.append(
                fault(f"nats-server at {where} has JetStream off", "start it with -js, or jetstream {} in its file")
            )
    return found or await _enter(way)


async def _enter(way: Access) -> list[Finding]:
    client = GuardedClient(tls_only=way.tls_only)

    async def quiet(error: Exception) -> None:
        del error

    try:
        with anyio.fail_after(CALL_SECONDS):
            await client.connect(
                list(way.servers), allow_reconnect=False, connect_timeout=2, error_cb=quiet, name="evolved-doctor",
                **way.options(),
            )  # fmt: skip
    except CONNECTION_ERRORS as error:
        return [
            fault(
                f"the broker at {', '.join(way.servers)} does not let us in: {error or type(error).__name__}",
                way.refusal(error) or "check nats.url and nats.secret_file (own broker: its credentials.json)",
            )
        ]
    finally:
        with suppress(Exception):
            await client.close()
    return []


BROKER = (Check("broker", "nats-server is there, lets us in, and has JetStream", _reach),)

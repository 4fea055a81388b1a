"""The broker: is it there, does it let us in, has it JetStream?"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec
import nats.errors
from nats.aio.client import Client

from actors.system.broker import read_credentials
from actors.system.errors import BrokerFailed
from daemon.doctor.base import CALL_SECONDS, Check, Finding, Scene, aside, fault
from daemon.processes.bus_connection import bus_settings


def _address(scene: Scene) -> tuple[str, str, str]:
    """(URL, user, password).

    Raises:
        BrokerFailed: our own broker has never been started.
        OSError: a password file cannot be read.
    """
    bus = bus_settings(scene.config.nats)
    if bus.url:
        return bus.url, bus.user, Path(bus.password_file).read_text().strip() if bus.password_file else ""
    own = read_credentials(scene.config.state / "broker" / "credentials.json")
    return own.url, own.user, own.password


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
        url, user, password = await aside(_address, scene)
    except BrokerFailed:
        return [
            fault(f"no broker has ever run with {scene.config.state / 'broker'}", start + "; or name yours: nats.url")
        ]
    except OSError as error:
        return [fault(f"nats.secret_file {error.filename}: {error.strerror}", "make it readable for the daemon's user")]
    parts = [urlsplit(one.strip()) for one in url.split(",")]
    found: list[Finding] = []
    for one in parts:
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
    if not found and not any(one.scheme in ("tls", "wss") for one in parts):
        found += await _enter(url, user, password)
    return found


async def _enter(url: str, user: str, password: str) -> list[Finding]:
    client = Client()

    async def quiet(error: Exception) -> None:
        del error

    try:
        with anyio.fail_after(CALL_SECONDS):
            await client.connect(
                url, user=user or None, password=password or None, allow_reconnect=False, connect_timeout=2,
                max_reconnect_attempts=0, error_cb=quiet, name="evolved-doctor",
            )  # fmt: skip
    except (nats.errors.Error, OSError, TimeoutError) as error:
        return [
            fault(
                f"the broker at {url} does not let us in: {error or type(error).__name__}",
                "check the user in nats.url and nats.secret_file (own broker: its credentials.json)",
            )
        ]
    finally:
        with suppress(Exception):
            await client.close()
    return []


BROKER = (Check("broker", "nats-server is there, lets us in, and has JetStream", _reach),)

"""A broker of ours that could not write, and would not write again.

Since 2.14 a stream whose write failed keeps the error until the server is restarted, and a permission denied once turns
JetStream off, while the server answers as ever. So the daemon asks for its health, waits until the disk takes bytes
again, and ends it; whoever runs it (systemd, the demo) starts it again. Its log is no witness: it lies on that disk.
"""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import anyio.to_thread
import msgspec
import structlog
from nats.aio.client import Client

from actors.system.broker import SYSTEM_USER, holder, read_credentials
from actors.system.connection import CONNECTION_ERRORS
from actors.system.errors import BrokerFailed
from actors.system.lifecycle import Lifecycle
from actors.system.runtime import Host

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
"""Between two questions for the server's health, or two looks at its disk."""
_PAUSE_SECONDS = 10.0
"""Before a server that was told to end is looked at again: it has to be started, and to read its store."""
_SIGNS = ("write error", "not enabled", "disabled")
"""Of what `$SYS.REQ.SERVER.PING.HEALTHZ` says, that which does not pass by itself."""
_PROBE = 4 << 20
"""Bytes that the disk must take: a stream goes on with a block of several megabytes."""
_SECONDS = 5
"""For the server's answer."""


async def heal(directory: Path, host: Host, lifecycle: Lifecycle) -> None:
    """As a supervised task: see that the broker of `directory` writes."""
    lifecycle.ready()
    pause = _LOOK_SECONDS
    while await lifecycle.pause(pause):
        lifecycle.beat()
        pause, error = _LOOK_SECONDS, await host(_write_failure, directory)
        if not error:
            continue
        _log.error("broker_cannot_write", error=error, directory=str(directory))
        lifecycle.waiting(f"nats-server cannot write: {error}")
        while not await anyio.to_thread.run_sync(_has_room, directory):
            if not await lifecycle.pause(_LOOK_SECONDS):
                return
            lifecycle.beat()
        _log.warning("broker_ended", reason="it could not write, and the disk takes bytes again")
        if pid := holder(directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # what fails to write may fail to stop; its store is made for this
        lifecycle.ready()
        pause = _PAUSE_SECONDS


async def _write_failure(directory: Path) -> str:
    """Why the server writes no more; empty if it does, or does not answer. On the host loop."""

    async def quiet(error: Exception) -> None: ...

    with contextlib.suppress(BrokerFailed, msgspec.DecodeError, *CONNECTION_ERRORS):
        told, client = read_credentials(directory / "credentials.json"), Client()
        try:
            await client.connect(
                told.url, user=SYSTEM_USER, password=told.system_password, allow_reconnect=False, error_cb=quiet,
                connect_timeout=_SECONDS,
            )  # fmt: skip
            answer = await client.request("$SYS.REQ.SERVER.PING.HEALTHZ", timeout=_SECONDS)
        finally:
            await client.close()
        error = str(msgspec.json.decode(answer.data).get("data", {}).get("error", ""))
        return error if any(sign in error for sign in _SIGNS) else ""
    return ""


def _has_room(directory: Path) -> bool:
    """Whether the disk of `directory` takes bytes now."""
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True

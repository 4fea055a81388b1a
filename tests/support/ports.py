"""Ports of loopback for processes that are told where to listen."""

import contextlib
import os
import random
import socket

_PORTS = range(10_240, 32_768)
"""Below those that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range): one of these may be taken
by anybody's connection after it was found free, and before it is listened on."""
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_MINE = _PORTS[_WORKER::_WORKERS]
"""Every pytest-xdist worker has its own: between finding a port and listening on it, another would find it too."""
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that was not given before."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """`count` of them.

    Raises:
        OSError: there are not so many.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(_MINE, len(_MINE)):
            if len(found) == count:
                break
            if port not in _given:
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                    found.append(port)
    if len(found) < count:
        raise OSError(f"{count} free ports wanted, {len(found)} found")
    _given.update(found)
    return found

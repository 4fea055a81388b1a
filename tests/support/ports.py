"""Ports of loopback for processes that are told where to listen, none of them twice."""

import os

from daemon.demo import ports

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_mine = set(ports.PORTS[_WORKER::_WORKERS])
"""Every pytest-xdist worker has its own: between finding a port and listening on it, another would find it too."""


def free_port() -> int:
    """A port that nobody listens on, and that was not given before."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """`count` of them.

    Raises:
        OSError: there are not so many.
    """
    found = ports.free_ports(count, sorted(_mine))
    _mine.difference_update(found)
    return found

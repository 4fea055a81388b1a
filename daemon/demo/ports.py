"""Ports of loopback for processes that are told where to listen."""

import contextlib
import random
import socket
from collections.abc import Sequence

PORTS = range(10_240, 32_768)
"""Below those that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range): one of these may be taken
by anybody's connection after it was found free, and before it is listened on."""


def free_ports(count: int, among: Sequence[int] = PORTS) -> list[int]:
    """`count` different ports that nobody listens on.

    Raises:
        OSError: there are not so many.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(among, len(among)):
            if len(found) == count:
                break
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    if len(found) < count:
        raise OSError(f"{count} free ports wanted, {len(found)} found")
    return found

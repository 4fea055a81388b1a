"""Requests as the tap's parser hands them on."""

from daemon.tap.paths import cut_names
from daemon.tap.request import Head, Request


def request(
    body: bytes = b"{}",
    path: bytes = b"/v1/chat/completions",
    method: bytes = b"POST",
    received: float = 1.0,
    **headers: str,
) -> Request:
    """A request; `headers` with _ for -."""
    told = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    lines = [(name.lower(), name, value) for name, value in told.items()]
    target, agent, run = cut_names(path)
    head = Head(method, target, target.partition(b"?")[0], lines, agent=agent, run=run)
    return Request(head, body, received)

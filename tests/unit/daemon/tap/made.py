"""Requests as the tap's parser hands them on."""

from daemon.tap.request import Head, Request, Upload


def request(
    body: bytes = b"{}",
    path: bytes = b"/v1/chat/completions",
    method: bytes = b"POST",
    upload: Upload | None = None,
    received: float = 1.0,
    **headers: str,
) -> Request:
    """A request; `headers` with _ for -."""
    told = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    lines = [(name.lower(), name, value) for name, value in told.items()]
    return Request(Head(method, path, path.partition(b"?")[0], lines), body, received, upload)

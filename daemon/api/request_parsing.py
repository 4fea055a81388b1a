"""What the control API's parts read of a request: whose it is, and its body."""

from typing import TypeVar

import msgspec
from starlette.requests import Request

from daemon.api.admin import holder
from daemon.errors import OrderRefused

T = TypeVar("T")
MAX_BODY = 1 << 20
"""Bytes of a request, where nothing else is said."""


def who(request: Request) -> str:
    """Id of the operator's key that it came with; empty without keys."""
    key = holder(request.state)
    return key.id if key is not None else ""


def bound_to(request: Request) -> str:
    """The tenant that a key of scope `teach` is confined to; empty: any."""
    key = holder(request.state)
    return key.tenant if key is not None and key.scope == "teach" else ""


async def read_body(request: Request, kind: type[T], most: int = MAX_BODY) -> T:
    """The request's body. Asks for JSON so that no form on another page can send it.

    Raises:
        OrderRefused: 413, 415, 422.
    """
    if request.headers.get("content-type", "").split(";")[0] != "application/json":
        raise OrderRefused(415, "send content-type: application/json")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most:
            raise OrderRefused(413, f"the body has more than {most:,} bytes")
    try:
        return msgspec.json.decode(bytes(data) or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OrderRefused(422, f"the body must be a JSON object as /api/openapi.json has it: {error}") from error

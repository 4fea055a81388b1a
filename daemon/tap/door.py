"""Who may come in, and what is kept of them."""

from collections import Counter
from collections.abc import Callable

import msgspec

from daemon.tap.http import Request

_NO = (b"", b"0", b"false", b"no")


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tap.door]`."""


class Visitor(msgspec.Struct, frozen=True):
    """Who asks."""

    tenant: str
    caller: str = ""
    keep: bool = True
    why_not: str = ""
    strip_authorization: bool = False


class Door:
    """Lets requests in."""

    def __init__(self, settings: DoorSettings, *, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()

    def admit(self, request: Request) -> Visitor:
        tenant = request.header(b"x-evolved-tenant").decode("utf-8", "replace").strip()[:256] or "default"
        out = request.header(b"x-evolved-opt-out").strip().lower() not in _NO
        return Visitor(tenant, keep=not out, why_not="opted_out" if out else "")

    def reload(self) -> None:
        pass

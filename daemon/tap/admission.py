"""The door: who may come in, on whose behalf, and whether anything is kept of the call.

    request -> [key, tenant] -> Refused, or Visitor -> [opt-out, page, sampling] -> keep or not

Only a missing or wrong key turns a call away; what is ours to answer (feedback, the admin port) is closed to web pages
as well. Everything else decides about the copy alone: sampled out or opted out, a call passes as ever. Without keys and
samples it is one look at the headers.
"""

import ipaddress
from collections.abc import Callable
from pathlib import Path

import msgspec

from daemon.tap.conversation import opted_out, sampled
from daemon.tap.errors import InvalidTapSettings, KeysUnusable, Refused
from daemon.tap.keys import OPERATORS, Key, KeyRing, is_loopback, opens, presented
from daemon.tap.paths import FEEDBACK, HEALTH
from daemon.tap.request import Head, Request

_KEY, _TENANT, _OUT = b"x-evolved-key", b"x-evolved-tenant", b"x-evolved-opt-out"
_AUTHORIZATION = b"authorization"
_TOLD = frozenset({_KEY, _TENANT, _OUT})
_NO = frozenset({b"", b"0", b"false", b"no"})
_MARK = b"evolved_opt_out"
_NAMED = 256


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in, and what is kept of them."""

    keys_file: str = ""
    """Key file that `evolved keys` writes, below `state_dir` if relative; empty: nobody has keys. An admin key in it
    guards the tap's admin port and the control API."""
    require_key: bool = False
    """Refuse calls without an agent's key. Off, such a call belongs to the tenant that its x-evolved-tenant names."""
    sampling: dict[str, float] = msgspec.field(default_factory=lambda: {"": 1.0})
    """The share of its runs that is kept, 0 to 1, by tenant; "": of those that are not named."""


class Visitor(msgspec.Struct, frozen=True, gc=False):
    """Who makes a call, and what becomes of its copy."""

    tenant: str
    caller: str = ""
    """Id of the agent's key; empty without one."""
    keep: bool = True
    why_not: str = ""
    """opted_out, other_site (a web page sent it, without a key) or sampled_out."""
    strip_authorization: bool = False
    """The authorization header is a key of ours: it does not travel to the engine."""


class Admission:
    """Lets requests in."""

    def __init__(self, settings: DoorSettings, *, clock: Callable[[], float]) -> None:
        if settings.require_key and not settings.keys_file:
            raise InvalidTapSettings(
                "tap.require_key is on and there are no keys: nobody could come in; make one with "
                "`evolved keys add --tenant NAME`"
            )
        self._require, self._sampling = settings.require_key, settings.sampling
        self._keeps_all = set(settings.sampling.values()) == {1.0}
        self._ring: KeyRing | None = None
        if settings.keys_file:
            try:
                self._ring = KeyRing(Path(settings.keys_file), clock=clock)
            except KeysUnusable as error:
                raise InvalidTapSettings(f"keys: {error}") from error
        self._plain = Visitor("default")

    def admit(self, request: Request) -> Visitor:
        """Who makes the call; refused without a key where one is required, or with one that does not open this port."""
        head, told = request.head, request.head.named
        # A key of ours never travels on, whether or not it opens anything here.
        if head.quiet is None:
            head.quiet = _TOLD.isdisjoint(told) and not _shown_as_authorization(head) and not from_a_page(head)
        # From behind because that is twice as fast, and a body is mostly history.
        marked = request.body.rfind(_MARK) >= 0
        if head.quiet and not marked and self._keeps_all and self._ring is None:
            return self._plain
        tenant, caller = self.check(head)
        why_not = ""
        if told.get(_OUT, b"").strip().lower() not in _NO or (marked and opted_out(request.body)):
            why_not = "opted_out"
        elif not caller and from_a_page(head):
            why_not = "other_site"
        elif request.method == b"POST" and request.path.rstrip(b"/") != FEEDBACK:
            share = self._sampling.get(tenant, self._sampling[""])
            why_not = "" if sampled(request, share, tenant=tenant, caller=caller) else "sampled_out"
        return Visitor(tenant, caller, not why_not, why_not, _shown_as_authorization(head))

    def check(self, head: Head) -> tuple[str, str]:
        """Tenant, and id of the key, that a request with this head comes from: all that can be told before its body."""
        told = head.named
        tenant = told.get(_TENANT, b"").decode("utf-8", "replace").strip()[:_NAMED]
        caller = ""
        if self._ring is not None:
            key = self._key(self._ring, _shown(head), head)
            if key is not None:
                if tenant and tenant != key.tenant:
                    raise Refused(403, "wrong_tenant", "the key is another tenant's; leave x-evolved-tenant out")
                tenant, caller = key.tenant, key.id
        return tenant or "default", caller

    def admit_admin(self, head: Head) -> None:
        """Let a request pass whose key opens `read`; while there is no operator's key, anybody's but a web page's."""
        ring = self._ring
        if ring is None or not ring.guarded:
            # Who points a name of theirs at this machine (DNS rebinding) makes a page's requests look like our own.
            if from_a_page(head) or not is_this_machine(head.named.get(b"host", b"")):
                raise Refused(
                    403, "other_site", "without an operator's key this is for programs of this machine, at its "
                    "address or localhost; make a key with `evolved keys add --scope read --tenant NAME`",
                )  # fmt: skip
            return
        shown = _shown(head)
        key = ring.find(shown) if shown else None
        if key is None or not opens(key.scope, "read"):
            if key is not None and key.scope in OPERATORS:
                raise _refused(403, "wrong_scope", f"the key {key.id} has the scope {key.scope}", "read")
            raise _refused(401, "invalid_key", "an operator's key is needed", "read")

    def check_admin_host(self, setting: str, host: str) -> None:
        """Refuse to stand open to the network without an admin key; `setting` is where `host` is from."""
        if not is_loopback(host) and (self._ring is None or not self._ring.guarded):
            raise InvalidTapSettings(
                f"{setting} {host!r}: others can reach it and it has no admin key; make one with `evolved keys add "
                "--scope admin`, or listen on 127.0.0.1"
            )

    def reload(self) -> None:
        """Take over a changed key file. Costs one stat if it has not changed: once a second is right."""
        if self._ring is not None:
            self._ring.refresh()

    def _key(self, ring: KeyRing, shown: bytes, head: Head) -> Key | None:
        if not shown:
            # Probes of a load balancer have no key, and learn nothing but that the engine lives.
            if self._require and head.path != HEALTH:
                raise _refused(401, "missing_key", "an agent's key is needed")
            return None
        key = ring.find(shown)
        if key is None:
            raise _refused(401, "invalid_key", "unknown, revoked or expired (see `evolved keys list`)")
        if key.scope != "agent":
            raise _refused(403, "wrong_scope", f"a key of scope {key.scope} does not open this port")
        return key


def _shown(head: Head) -> bytes:
    return presented(head.named.get(_KEY, b""), head.named.get(_AUTHORIZATION, b""))


def _refused(status: int, code: str, what: str, scope: str = "agent") -> Refused:
    how = f"make one with `evolved keys add --scope {scope} --tenant NAME`"
    message = f"{what}; show it in x-evolved-key or as a bearer's token; {how}"
    return Refused(status, code, message, param="x-evolved-key")


def _shown_as_authorization(head: Head) -> bool:
    return bool(presented(b"", head.named.get(_AUTHORIZATION, b"")))


def from_a_page(head: Head) -> bool:
    """Whether a page in a browser sent it. Nothing that a tap serves is a page, so none of them is our own."""
    told = head.named
    return b"origin" in told or told.get(b"sec-fetch-site", b"none") not in (b"none", b"")


def is_this_machine(host: bytes) -> bool:
    """Whether a Host header is an address or localhost: no name that somebody else can point here."""
    name = host.decode("latin-1").strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

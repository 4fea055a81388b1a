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
from daemon.tap.errors import InvalidTapSettings, Refused
from daemon.tap.keys import KeyRing, presented
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
        self.ring = KeyRing(Path(settings.keys_file), clock=clock) if settings.keys_file else None
        self._plain = Visitor("default")

    def admit(self, request: Request) -> Visitor:
        """Who makes the call; refused without a key where one is required, or with one that does not open this port."""
        head, told = request.head, request.head.named
        # A key of ours never travels on, whether or not it opens anything here.
        if head.quiet is None:
            head.quiet = _TOLD.isdisjoint(told) and not _shown_as_authorization(head) and not from_a_page(head)
        # From behind because that is twice as fast, and a body is mostly history.
        marked = request.body.rfind(_MARK) >= 0
        if head.quiet and not marked and self._keeps_all and self.ring is None:
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
        if self.ring is None:
            return tenant or "default", ""
        try:
            key = self.ring.check(told, "agent")
        except Refused as refusal:
            # Probes of a load balancer have no key, and learn nothing but that the engine lives.
            if refusal.code != "missing_key" or (self._require and head.path != HEALTH):
                raise
            return tenant or "default", ""
        if tenant and tenant != key.tenant:
            raise Refused(403, "wrong_tenant", "the key is another tenant's; leave x-evolved-tenant out")
        return key.tenant, key.id

    def admit_admin(self, head: Head) -> None:
        """Let a request pass whose key opens `read`; while there is no operator's key, anybody's but a web page's."""
        ring = self.ring
        if ring is None or not ring.guarded:
            # Who points a name of theirs at this machine (DNS rebinding) makes a page's requests look like our own.
            if from_a_page(head) or not is_this_machine(head.named.get(b"host", b"")):
                raise Refused(
                    403, "other_site", "without an operator's key this is for programs of this machine, at its "
                    "address or localhost; make a key with `evolved keys add --scope read --tenant NAME`",
                )  # fmt: skip
            return
        ring.check(head.named, "read")

    def reload(self) -> None:
        """Take over a changed key file. Costs one stat if it has not changed: once a second is right."""
        if self.ring is not None:
            self.ring.refresh()


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

"""What an operator may order: freeze, thaw, promote, roll back. Checked against what is known, signed, recorded, sent.

    evolved promote | rollback | freeze | thaw  ->  control API  ->  `Orders`  ->  policy.directive  ->  the actors

An order that cannot be carried out is refused here, with what would be possible. Promotions carry the signature without
which the swapper brings nothing in.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import anyio.to_thread
import msgspec
import structlog

from actors.deployment.fleet import Fleet
from actors.deployment.pinned_versions import manifest_problem
from actors.messages import Candidate, Directive, Verdict, derived_id, new_id
from actors.messages.signing import PublicKeys, SigningKey, record_problem, sign
from actors.store import Store
from daemon.api.killswitch import KillSwitch
from daemon.errors import OrderRefused

log = structlog.get_logger(__name__)
_VERSIONS = 1000
_LISTED = 12


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an order."""

    reason: str = ""
    version: int | None = None
    """To promote."""
    force: bool = False
    """Promote what the gate did not, or what was rolled back."""
    to: int | None = None
    """Version to go back to; None: the one before."""


class Orders:
    """Takes orders from the control API."""

    def __init__(
        self,
        *,
        store: Store,
        fleet: Callable[[], Fleet],
        kill: KillSwitch,
        send: Callable[[Directive], Awaitable[None]],
        key: SigningKey,
        keys: PublicKeys,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            fleet: what serves and what should.
            send: records a directive and publishes it.
            key: signs it.
            keys: that a verdict must be signed with to count.
        """
        self._store, self._fleet, self._kill = store, fleet, kill
        self._send, self._key, self._keys, self._clock = send, key, keys, clock

    async def give(self, kind: str, order: Order, by: str = "") -> Directive:
        """Give `order`, on behalf of the admin key with the id `by`.

        Raises:
            OrderRefused: it cannot be carried out; says why, and what could be.
        """
        match kind:
            case "freeze":
                return await self.issue("freeze", order.reason or "by hand", by=by)
            case "thaw":
                if reason := self._kill.reason():
                    raise OrderRefused(409, f"the kill switch is on ({reason}); remove {self._kill.path} first")
                return await self.issue("thaw", order.reason or "by hand", by=by)
            case "promote":
                return await self._promote(order, by)
            case "rollback":
                return await self._rollback(order, by)
            case _:
                raise OrderRefused(404, f"no order {kind!r}; there are freeze, thaw, promote and rollback")

    async def issue(
        self,
        kind: Literal["freeze", "thaw", "promote", "rollback"],
        reason: str,
        details: dict[str, str] | None = None,
        *,
        by: str = "",
        origin: str = "control",
    ) -> Directive:
        """Sign, record and send a directive."""
        directive = Directive(
            id=derived_id("directive", kind, new_id()),
            kind=kind,
            reason=reason,
            origin=origin,
            created=self._clock(),
            details={**(details or {}), **({"by": by} if by else {})},
        )
        directive = sign(directive, self._key)
        await self._send(directive)
        log.info("order_given", kind=kind, reason=reason, origin=origin, **directive.details)
        return directive

    async def note(self, what: str, details: dict[str, str], by: str = "") -> None:
        """Put on record in the audit trail what an operator did that orders nothing of the actors."""
        await self._store.save([notice(what, details, by=by, now=self._clock())])
        log.info("operator", what=what, by=by, **details)

    async def _promote(self, order: Order, by: str) -> Directive:
        version = order.version
        if version is None:
            raise OrderRefused(422, 'which version? send {"version": 12}')
        if order.force and not order.reason.strip():
            raise OrderRefused(422, "--force goes past the gate: give a --reason, it is kept with the order")
        if reason := self._kill.reason():
            raise OrderRefused(409, f"the kill switch is on ({reason}); remove {self._kill.path} first")
        if await self._store.frozen():
            raise OrderRefused(409, "learning is frozen, nothing is brought in; `evolved thaw` first")
        fleet = self._fleet()
        if version == fleet.stable and fleet.canary is None:
            raise OrderRefused(409, f"version {version} serves already")
        candidate = await self._candidate(version, fleet)
        verdict = await self._verdict(candidate)
        if not order.force:
            self._refuse_unjudged(candidate, verdict, fleet)
        path = Path(candidate.path)
        # A version that is still at the learner's node is checked when it is pulled.
        problem = await anyio.to_thread.run_sync(manifest_problem, path, candidate.manifest) if path.exists() else ""
        if problem:
            raise OrderRefused(409, f"version {version} at {candidate.path}: {problem}; it cannot be loaded")
        details = {
            "version": str(version),
            "path": candidate.path,
            "manifest": candidate.manifest,
            "verdict": verdict.decision if verdict is not None else "none",
            "forced": "yes" if order.force else "no",
        }
        return await self.issue("promote", order.reason or "by hand", details, by=by)

    def _refuse_unjudged(self, candidate: Candidate, verdict: Verdict | None, fleet: Fleet) -> None:
        how = f'to bring it in all the same: evolved promote {candidate.version} --force --reason "..."'
        if verdict is None:
            raise OrderRefused(409, f"the gate has not judged version {candidate.version} yet; {how}")
        if verdict.decision != "promote":
            said = f"the gate's verdict on version {candidate.version} is {verdict.decision} ({verdict.reason})"
            raise OrderRefused(409, f"{said}; {how}")
        if candidate.version in fleet.banned:
            raise OrderRefused(409, f"version {candidate.version} was rolled back or refused; {how}")

    async def _candidate(self, version: int, fleet: Fleet) -> Candidate:
        known = await self._store.newest(Candidate, _VERSIONS)
        found = next((item for item in known if item.version == version), None)
        if found is None:
            if version in fleet.good:
                raise OrderRefused(409, f"version {version} was not learned here: `evolved rollback --to {version}`")
            raise OrderRefused(404, f"no version {version}; there are {_listed([item.version for item in known])}")
        return found

    async def _verdict(self, candidate: Candidate) -> Verdict | None:
        """The gate's last word on exactly these weights."""
        for verdict in await self._store.newest(Verdict, _VERSIONS):
            if verdict.manifest == candidate.manifest and not record_problem(verdict, self._keys):
                return verdict
        return None

    async def _rollback(self, order: Order, by: str) -> Directive:
        if not order.reason.strip():
            raise OrderRefused(422, "why? give a --reason, it is kept with the order")
        fleet = self._fleet()
        bad = fleet.canary if fleet.canary_engine else fleet.stable
        choices = [version for version in reversed(fleet.good) if version not in fleet.banned and version != bad]
        if bad is None or not choices:
            raise OrderRefused(409, "there is nothing to go back to: no other version has served")
        to = order.to if order.to is not None else choices[0]
        if to not in choices:
            why = "serves already" if to == bad else "never served, or was rolled back"
            raise OrderRefused(404, f"version {to} {why}; one can go back to {_listed(choices)}")
        if to != fleet.stable and fleet.stable is not None:
            bad = fleet.stable  # further back than the end of a trial: what was stable goes, the trial with it
        return await self.issue("rollback", order.reason, {"version": str(bad), "to": str(to)}, by=by)


def notice(what: str, details: dict[str, str], *, by: str, now: float) -> Directive:
    """A directive that orders nothing: that the key `by` did `what`. Ids and names, nothing that was said."""
    return Directive(
        id=derived_id("directive", what, new_id()), kind="notice", reason=what, origin="control", created=now,
        details={**details, **({"by": by} if by else {})},
    )  # fmt: skip


def _listed(versions: Sequence[int]) -> str:
    """For an error: the newest few."""
    newest = sorted(set(versions), reverse=True)
    more = len(newest) - _LISTED
    text = ", ".join(str(version) for version in newest[:_LISTED]) or "none yet"
    return f"{text} and {more} older" if more > 0 else text

"""`Guarded`: a live API with the operator's policy around it, itself a `LiveApi`; what everybody else is given.

    call -> policy -> breaker -> rate, concurrency, deadline -> API -> scrubbed -> recorded
                 \\-> arguments checked -> recorded answer | made up from the schema | refused
    either way: one line in the audit log, counters

What breaks is logged once when it breaks and once when it recovers.
"""

import copy
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec
import structlog

from actors.ports.errors import LiveApiError, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable, LiveToolUnknown
from adapters.live import CallResult, HoldsSecrets, LiveApi, Operation
from adapters.live.audit import AuditLine, AuditLog
from adapters.live.limits import TokenBucket, WindowBreaker
from adapters.live.policy import Decision, PolicySettings, decide, offered
from adapters.live.recording import Recorded, Recordings
from adapters.live.scrubbing import Scrubber
from adapters.live.simulation import simulated
from adapters.live.validation import Checker

_log = structlog.get_logger(__name__)
_SIMULATED = "(simulated: nothing was executed, this answer is made up from its description)\n"
_LOOK_AGAIN = 30.0
"""Seconds between two looks for a tool that is not known: an agent that makes names up must not become a load."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How an API does."""

    broken: bool
    since: float
    """Unix seconds since it is so; 0: it was not called yet."""
    error: str = ""
    """What went wrong last, scrubbed."""
    tools: int = 0


class Guarded:
    """A `LiveApi`.

    Args:
        api: what is guarded; closed with this.
        settings: the operator's policy.
        recordings: shared between APIs.
        audit: shared between APIs.
    """

    def __init__(
        self,
        api: LiveApi,
        settings: PolicySettings,
        *,
        recordings: Recordings,
        audit: AuditLog,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = api.name
        self._api, self._settings, self._clock = api, settings, clock
        self._recordings, self._audit = recordings, audit
        self._scrubber = Scrubber(api.secrets if isinstance(api, HoldsSecrets) else frozenset)
        # Intervals are of the event loop's clock, which is there once it runs.
        self._breaker = WindowBreaker(anyio.current_time)
        self._bucket = TokenBucket(settings.rate, anyio.current_time)
        self._turn = anyio.Semaphore(settings.concurrent)
        self._operations: dict[str, Operation] = {}
        self._checkers: dict[str, Checker] = {}
        self._looked = float("-inf")
        self._since, self._error = 0.0, ""
        self.counts: Counter[str] = Counter()
        """Calls by source (live, recorded, simulated, refused) and by what went wrong."""

    def shadow(self) -> "Guarded":
        """The same API for a sandbox, with the same limits, breaker, records and audit: whatever its mode, nothing is
        executed that the operator did not list as read-only."""
        view = copy.copy(self)
        if self._settings.mode == "live":
            view._settings = msgspec.structs.replace(self._settings, mode="shadow")
        return view

    @property
    def health(self) -> Health:
        return Health(broken=self._breaker.open, since=self._since, error=self._error, tools=len(self._operations))

    @property
    def policy(self) -> PolicySettings:
        """What the operator allows."""
        return self._settings

    @property
    def scrubbed(self) -> Mapping[str, int]:
        """What was taken out of answers, by kind."""
        return self._scrubber.finds

    async def tools(self) -> Sequence[Operation]:
        if not self._breaker.allows():
            if self._operations:
                return tuple(self._operations.values())
            raise LiveApiUnavailable(f"{self.name}: broken: {self._error}", self._breaker.remaining())
        found = await self._watched(self._api.tools)
        shown = [operation for operation in found if offered(self._settings, operation.name)]
        self._operations = {operation.name: operation for operation in shown}
        self._checkers.clear()
        return tuple(shown)

    def read_only(self, tool: str) -> bool:
        """Whether `tool` changes nothing, by the operator's word or its own."""
        named = decide(msgspec.structs.replace(self._settings, mode="shadow"), tool).execute
        return named or self._api.read_only(tool)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call `tool`, or answer in its place, as the policy says."""
        begun = anyio.current_time()
        digest = self._recordings.digest(self.name, tool, arguments)
        decision = decide(self._settings, tool)
        result, outcome = None, "cancelled"
        try:
            result = await self._answer(tool, arguments, digest, decision)
            outcome = "refused" if result.source == "refused" else "error" if result.error else "ok"
            self.counts[result.source] += 1
            self.counts["errors"] += result.error and result.source == "live"
            self.counts["mismatches"] += bool(result.mismatch)
            self.counts["truncated"] += result.truncated
            return result
        except LiveApiError as error:
            outcome = type(error).__name__
            self.counts[outcome] += 1
            raise
        finally:
            await self._audit.write(
                AuditLine(
                    time=self._clock(),
                    api=self.name,
                    tool=self._scrubber.text(tool[:100]),
                    call=digest,
                    mode=self._settings.mode,
                    source=result.source if result else "",
                    outcome=outcome,
                    status=result.status if result else 0,
                    ms=round((anyio.current_time() - begun) * 1000, 1),
                    why=decision.why,
                )
            )

    async def aclose(self) -> None:
        """Close the API behind; recordings and audit log are their owner's."""
        await self._api.aclose()

    async def _answer(self, tool: str, arguments: Mapping[str, Any], digest: str, decision: Decision) -> CallResult:
        if not offered(self._settings, tool):
            return _refused(tool, decision.why)
        operation = await self._operation(tool)
        if not decision.execute:
            return await self._stand_in(operation, arguments, digest, decision)
        try:
            result = await self._executed(operation, arguments)
        except LiveApiUnavailable:
            recorded = await self._recorded(digest) if self._settings.mode == "shadow" else None
            if recorded is None:
                raise
            return recorded
        if self._settings.record and not result.error:
            await self._recordings.put(
                digest,
                Recorded(
                    api=self.name, tool=tool, time=self._clock(), text=result.text, structured=result.structured,
                    status=result.status, truncated=result.truncated,
                ),
            )  # fmt: skip
        return result

    async def _operation(self, tool: str) -> Operation:
        now = anyio.current_time()
        if tool not in self._operations and now - self._looked >= _LOOK_AGAIN:
            await self.tools()
            self._looked = now  # not before: who could not look has not looked
        found = self._operations.get(tool)
        if found is None:
            raise LiveToolUnknown(f"{self.name} has no operation {self._scrubber.text(tool[:100])!r}")
        return found

    async def _executed(self, operation: Operation, arguments: Mapping[str, Any]) -> CallResult:
        await self._audit.ready()
        deadline = anyio.current_time() + self._settings.timeout
        await self._rate(deadline)
        try:
            with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                await self._turn.acquire()
        except TimeoutError:
            self.counts["crowded"] += 1
            raise LiveApiUnavailable(f"{self.name}: {self._settings.concurrent} calls are under way") from None
        try:
            if not self._breaker.allows():
                self.counts["breaker_open"] += 1
                raise LiveApiUnavailable(f"{self.name}: broken: {self._error}", self._breaker.remaining())
            result = await self._watched(lambda: self._api.call(operation.name, arguments), deadline)
        finally:
            self._turn.release()
        return self._cleaned(result)

    async def _rate(self, deadline: float) -> None:
        wait = self._bucket.take(deadline - anyio.current_time())
        if wait is None:
            self.counts["rate_limited"] += 1
            raise LiveApiUnavailable(f"{self.name}: called too often", self._bucket.wait())
        if wait:
            self.counts["delayed"] += 1
            await anyio.sleep(wait)

    async def _watched(self, ask: Callable[[], Any], deadline: float | None = None) -> Any:
        """What `ask` brings; the breaker learns of it, and errors lose their secrets. The breaker has allowed it."""
        told = False
        try:
            with anyio.fail_after(self._settings.timeout if deadline is None else deadline - anyio.current_time()):
                found = await ask()
            told = True
            self._answered()
            return found
        except TimeoutError:
            told = True
            error = LiveApiUnavailable(f"{self.name}: no answer within {self._settings.timeout:g} s")
            self._missed(error)
            raise error from None
        except LiveApiError as error:
            told = True
            clean = self._clean_error(error)
            self._missed(clean)
            raise clean from None
        finally:
            if not told:
                self._breaker.dropped()

    def _answered(self) -> None:
        if self._breaker.answered():
            _log.info("live_api_recovered", api=self.name, seconds=round(self._clock() - self._since, 1))
            self._since, self._error = self._clock(), ""
        self._since = self._since or self._clock()

    def _missed(self, error: LiveApiError) -> None:
        self._error = str(error)[:300]
        self._since = self._since or self._clock()
        if self._breaker.missed():
            self._since = self._clock()
            _log.warning("live_api_broke", api=self.name, error=self._error)

    def _clean_error(self, error: LiveApiError) -> LiveApiError:
        text = self._scrubber.text(str(error))
        if isinstance(error, LiveApiUnavailable):
            return LiveApiUnavailable(text, error.retry_after)
        return type(error)(text) if isinstance(error, LiveApiRefused) else LiveApiMalformed(text)

    def _cleaned(self, result: CallResult) -> CallResult:
        """`result` without secrets and of bounded size."""
        most = self._settings.max_text
        # Cut first: megabytes are not searched. A margin, for a secret at the edge.
        text = self._scrubber.text(result.text[: most + 4096])
        structured, cut = result.structured, len(result.text) > most
        if structured is not None:
            try:
                size = len(msgspec.json.encode(structured))
            except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
                size = self._settings.max_structured + 1
            large = size > self._settings.max_structured
            structured, cut = None if large else self._scrubber.value(structured), cut or large
        if len(text) > most:
            text = text[:most] + "\n(the rest is left out: too long)"
        return msgspec.structs.replace(
            result,
            text=text,
            structured=structured,
            truncated=result.truncated or cut,
            mismatch=self._scrubber.text(result.mismatch),
        )

    async def _stand_in(
        self, operation: Operation, arguments: Mapping[str, Any], digest: str, decision: Decision
    ) -> CallResult:
        """An answer without a call."""
        if not decision.stand_in:
            return _refused(operation.name, decision.why)
        recorded = await self._recorded(digest)
        if recorded is not None:
            return recorded
        checker = self._checkers.get(operation.name)
        if checker is None:
            checker = self._checkers[operation.name] = Checker(operation.parameters)
        given, complaints = checker.arguments(arguments)
        if complaints:
            # The API would have said so too: an agent's mistake is one in a shadow run as well.
            text = self._scrubber.text("Not called: " + "; ".join(complaints))
            return CallResult(text=text, error=True, source="simulated")
        if self._settings.simulate and operation.returns:
            made = self._scrubber.value(simulated(operation.returns, given))
            if made is not None:
                text = _SIMULATED + json.dumps(made, ensure_ascii=False)[: self._settings.max_text]
                return CallResult(text=text, structured=made, source="simulated")
        return _refused(operation.name, f"{decision.why}; there is no recorded answer to this call")

    async def _recorded(self, digest: str) -> CallResult | None:
        found = await self._recordings.get(digest)
        if found is None:
            return None
        age = max(0.0, self._clock() - found.time)
        if self._settings.max_age and age > self._settings.max_age:
            self.counts["too_old"] += 1
            return None
        return CallResult(
            text=found.text, structured=found.structured, status=found.status, truncated=found.truncated,
            source="recorded", age=age,
        )  # fmt: skip


def _refused(tool: str, why: str) -> CallResult:
    return CallResult(
        text=f"Not executed: {tool}: {why}. Go on without it, or tell what you would have done.",
        error=True,
        source="refused",
    )

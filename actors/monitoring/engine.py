"""Calls that fail since a swap: what an agent saw as a 5xx, through the tap.

Calls of one moment fare alike, which the exact test does not know: two looks in a row must agree, and the rise must be
large. Slow engines, and such as stand still, are Prometheus' affair: weights of one shape take the same time for a
token, whatever is in them.
"""

from collections.abc import Mapping, Sequence

import msgspec

from actors.messages import Exchange
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding, Monitor
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks

_VERSIONS = 4
_ERROR_RATE = 0.001 / 3
"""Chance that it speaks up about a swap that changed nothing, if calls were independent of each other."""
_CALLS = 512
"""Calls through the tap that are kept for each version."""
_LEAST = 40
"""Calls on either side of a comparison."""
_GROWTH = 1.3
"""The next look is when there are so many times as many calls."""
_STRIKES = 2
"""Looks in a row that must agree."""
_FAIL_RISE = 0.05
"""Smallest rise of the share of calls that fail."""


class Service(msgspec.Struct):
    """What is remembered of one engine."""

    swap: Swap | None = None
    calls: dict[int, list[bool]] = {}
    """By version the newest calls, and whether each failed."""
    looks: Looks = msgspec.field(default_factory=Looks)
    strikes: int = 0
    told: bool = False
    readings: dict[str, float] = {}


class EngineWatch(Monitor):
    """The engines that serve users."""

    name = "engine"
    kept = dict[str, Service]
    _state: dict[str, Service]

    def __init__(self) -> None:
        self._state = {}

    def swapped(self, swap: Swap) -> None:
        """The weights of one engine changed."""
        service = self._state.setdefault(swap.engine, Service())
        if service.swap is None or swap.since > service.swap.since:
            service.swap, service.looks, service.strikes, service.told = swap, Looks(), 0, False

    def called(self, exchange: Exchange) -> None:
        """A call went through the tap."""
        service = self._state.get(exchange.engine)
        serving = [one for one in self._state.values() if one.swap is not None]
        if service is None and len(serving) == 1:
            service = serving[0]  # tap and swapper may have different names for the only engine
        if service is None or service.swap is None:
            return
        swap, named = service.swap, {span.version for span in exchange.versions if span.version >= 0}
        if len(named) == 1:
            version = named.pop()
        elif not named and exchange.started >= swap.since:
            version = swap.version
        elif not named and exchange.started + exchange.duration < swap.since:
            version = swap.previous
        else:
            return  # in flight when the weights changed: belongs to neither
        calls = service.calls.setdefault(version, [])
        calls.append(exchange.status >= 500)
        del calls[:-_CALLS]
        for old in sorted(service.calls)[:-_VERSIONS]:
            del service.calls[old]

    def look(self, history: History, now: float) -> list[Finding]:
        found: list[Finding] = []
        for engine, service in self._state.items():
            swap = service.swap
            if swap is None or service.told or swap.version in history.condemned or swap.version < swap.previous:
                continue
            after, before = service.calls.get(swap.version, []), service.calls.get(swap.previous, [])
            if len(before) < _LEAST or not service.looks.due(len(after), _LEAST):
                continue
            if self._agreed(service, after, before):
                service.told = True
                found.append(self._finding(engine, swap, service.readings, after))
        return found

    def readings(self) -> Mapping[str, float]:
        return {
            f"{engine}_{name}": v for engine, service in self._state.items() for name, v in service.readings.items()
        }

    def _agreed(self, service: Service, after: Sequence[bool], before: Sequence[bool]) -> bool:
        """Whether this is the look at which it is believed."""
        share, earlier = sum(after) / len(after), sum(before) / len(before)
        service.readings = {"failed_before": earlier, "failed_after": share}
        service.looks.take(len(after), _GROWTH)
        chance = seq.count_rise((sum(after), len(after)), (sum(before), len(before)))
        worse = share - earlier >= _FAIL_RISE and chance <= service.looks.spend(_ERROR_RATE)
        service.strikes = service.strikes + 1 if worse else 0
        return service.strikes >= _STRIKES

    def _finding(self, engine: str, swap: Swap, readings: Mapping[str, float], after: Sequence[bool]) -> Finding:
        before, now = readings["failed_before"], readings["failed_after"]
        text = f"failed calls {before:.1%} -> {now:.1%} ({sum(after)} of {len(after)})"
        return Finding(
            cause="engine-errors",
            key=(engine, swap.version),
            action="rollback",
            reason=f"{engine}: {text} since version {swap.version}",
            details={"engine": engine, "version": str(swap.version), "to": str(swap.previous)},
        )

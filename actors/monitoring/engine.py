"""What serving feels like: errors, waiting, and engines that stand still.

Two sources, compared before and after a swap: calls through the tap (5xx, seconds), and the engine's own figures (first
token, queue, tokens made). Slow is what 95 % of calls were faster than before. Calls of one moment fare alike, which
the exact test does not know: several looks in a row must agree, and the change must be large.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from actors.messages import Exchange
from actors.monitoring.engine_figures import Figures
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Action, Finding, Monitor
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks

_SLOW = 0.95
_VERSIONS = 4
_ERROR_RATE = 0.001 / 3
"""Chance that failures, time for a call or time to first token speak up about a swap that changed nothing, if calls
were independent of each other: a third of one in a thousand each."""
_CALLS = 512
"""Calls through the tap that are kept for each version."""
_LEAST = 40
"""Calls on either side of a comparison."""
_GROWTH = 1.3
"""The next look is when there are so many times as many calls."""
_STRIKES = 2
"""Looks in a row that must agree: calls of one moment fare alike."""
_WINDOW_SECONDS = 600.0
"""Of the engine's own figures that stand for "before", and for which "after" is watched."""
_SETTLE_SECONDS = 20.0
"""After a swap, left out: caches are cold."""
_FAIL_RISE = 0.05
"""Smallest rise of the share of calls that fail."""
_SLOW_FACTOR = 2.0
"""Smallest growth of the 95th percentile of time to first token, or of time for a call."""
_QUEUE_FACTOR = 4.0
"""Growth of the mean queue that is told (it never acts: load does that too)."""
_STALL_SECONDS = _PAUSE_SECONDS = 60.0
"""An engine that has requests in hand and makes no token, or is paused, for so long raises an alarm."""


class ServedCall(msgspec.Struct, array_like=True):
    """One call as its agent saw it."""

    failed: bool
    seconds: float


class Seen(msgspec.Struct, array_like=True):
    """An engine's figures at a time."""

    at: float
    figures: Figures


class Service(msgspec.Struct):
    """What is remembered of one engine."""

    swap: Swap | None = None
    ring: list[Seen] = []
    """Newest figures, oldest first."""
    before: tuple[Seen, Seen] | None = None
    """First and last figures of the time before the swap."""
    start: Seen | None = None
    """First figures after it, once it had settled."""
    calls: dict[int, list[ServedCall]] = {}
    """By version."""
    looks: dict[str, Looks] = {}
    strikes: dict[str, int] = {}
    told: list[str] = []
    paused: float = 0.0
    """Since when, 0 if it is not."""
    moved: float = 0.0
    """When it last made a token, or had nothing to do."""
    alarms: list[str] = []
    """Raised and not over."""
    readings: dict[str, float] = {}


class EngineWatch(Monitor):
    """The engines that serve users.

    Slowness is told, no more: weights of one shape take the same time for a token, whatever is in them. What made the
    engine slow is beside it, as a rule, and answers that grew long are `length`'s to judge.
    """

    name = "engine"
    kept = dict[str, Service]
    _state: dict[str, Service]

    def __init__(self) -> None:
        self._state = {}

    def swapped(self, swap: Swap) -> None:
        """The weights of one engine changed."""
        service = self._state.setdefault(swap.engine, Service())
        if service.swap is not None and swap.since <= service.swap.since:
            return
        past = [seen for seen in service.ring if swap.since - _WINDOW_SECONDS <= seen.at <= swap.since]
        service.before = (past[0], past[-1]) if len(past) > 1 else None
        service.swap, service.start = swap, None
        service.looks, service.strikes, service.told = {}, {}, []

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
        calls.append(ServedCall(exchange.status >= 500, exchange.duration))
        del calls[:-_CALLS]
        for old in sorted(service.calls)[:-_VERSIONS]:
            del service.calls[old]

    def measured(self, engine: str, figures: Figures, paused: bool, now: float) -> None:
        """An engine was looked at."""
        service = self._state.setdefault(engine, Service())
        last = service.ring[-1].figures if service.ring else None
        if last is not None and (figures.finished < last.finished or figures.tokens < last.tokens):
            service.ring, service.before, service.start = [], None, None  # it was started anew: counters begin with 0
            last = None
        moving = last is None or figures.tokens > last.tokens or figures.finished > last.finished
        if moving or paused or not figures.running + figures.waiting:
            service.moved = now
        service.paused = (service.paused or now) if paused else 0.0
        seen = Seen(now, figures)
        service.ring = [old for old in service.ring if old.at > now - _WINDOW_SECONDS] + [seen]
        swap = service.swap
        if swap is not None and service.start is None and now >= swap.since + _SETTLE_SECONDS:
            service.start = seen

    def look(self, history: History, now: float) -> list[Finding]:
        found: list[Finding] = []
        for engine, service in self._state.items():
            found += self._alarms(engine, service, now)
            swap = service.swap
            if swap is None or swap.version in history.condemned or swap.version < swap.previous:
                continue
            found += self._calls(service, swap)
            if now <= swap.since + _SETTLE_SECONDS + _WINDOW_SECONDS:
                found += self._figures(service, swap)
        return found

    def readings(self) -> Mapping[str, float]:
        return {
            f"{engine}_{name}": v for engine, service in self._state.items() for name, v in service.readings.items()
        }

    def _alarms(self, engine: str, service: Service, now: float) -> list[Finding]:
        found: list[Finding] = []
        # Up to when it was last seen: whether an engine that does not answer has requests in hand is not known.
        seen = service.ring[-1].at if service.ring else now
        paused = seen - service.paused if service.paused else 0.0
        stalled = seen - service.moved if service.moved else 0.0
        service.readings |= {"paused_seconds": paused, "stalled_seconds": stalled}
        for cause, seconds, limit, text in (
            ("paused", paused, _PAUSE_SECONDS, "is paused"),
            ("stalled", stalled, _STALL_SECONDS, "has requests in hand and makes no token"),
        ):
            if seconds < limit:
                service.alarms = [alarm for alarm in service.alarms if alarm != cause]
            elif cause not in service.alarms:
                service.alarms.append(cause)
                key = (engine, int(seen - seconds))
                reason = f"{engine} {text} for {seconds:.0f} s"
                details = {"engine": engine, "cause": cause}
                found.append(Finding(cause=cause, key=key, action="tell", reason=reason, details=details))
        return found

    def _calls(self, service: Service, swap: Swap) -> list[Finding]:
        after, before = service.calls.get(swap.version, []), service.calls.get(swap.previous, [])
        found: list[Finding] = []
        if len(before) < _LEAST:
            return found
        now, was = _failed(after), _failed(before)
        share, earlier = now[0] / max(1, now[1]), was[0] / was[1]
        service.readings |= {"failed_before": earlier, "failed_after": share}
        if self._agreed(service, "errors", now, was, share - earlier >= _FAIL_RISE):
            text = f"failed calls {earlier:.1%} -> {share:.1%} ({now[0]} of {now[1]})"
            found.append(self._finding(service, swap, "errors", text, "rollback"))
        # A failure is quick: only what was answered tells how long answers take.
        times, past = (sorted(call.seconds for call in calls if not call.failed) for calls in (after, before))
        if len(past) >= _LEAST and times:
            limit, p95 = _quantile(past), _quantile(times)
            service.readings |= {"latency_before": limit, "latency_after": p95}
            slow = (sum(one > limit for one in times), len(times))
            usual = (sum(one > limit for one in past), len(past))
            if self._agreed(service, "latency", slow, usual, p95 >= _SLOW_FACTOR * limit):
                text = f"95 % of calls answered within {limit:.3g} s -> {p95:.3g} s"
                found.append(self._finding(service, swap, "latency", text, "tell"))
        return found

    def _figures(self, service: Service, swap: Swap) -> list[Finding]:
        found: list[Finding] = []
        if service.before is None or service.start is None or service.ring[-1].at <= service.start.at:
            return found
        (first, last), start, newest = service.before, service.start, service.ring[-1]
        was, now = _between(first, last), _between(start, newest)
        if was.get(math.inf, 0) < _LEAST or not now.get(math.inf, 0):
            return found
        load = (now[math.inf] / (newest.at - start.at)) / (was[math.inf] / (last.at - first.at))
        limit, p95 = _bound(was), _bound(now)
        service.readings |= {"first_token_before": limit, "first_token_after": p95, "load": load}
        slow, usual = ((counts[math.inf] - counts.get(limit, 0), counts[math.inf]) for counts in (now, was))
        if self._agreed(service, "first-token", slow, usual, p95 >= _SLOW_FACTOR * limit):
            text = f"95 % of first tokens within {limit:.3g} s -> {p95:.3g} s, at {load:.1f} times the load"
            found.append(self._finding(service, swap, "first-token", text, "tell"))
        queues = [[seen.figures.waiting for seen in service.ring if low < seen.at <= high] for low, high in (
            (first.at, last.at), (start.at, newest.at)
        )]  # fmt: skip
        if min(map(len, queues)) >= _STRIKES and "queue" not in service.told:
            earlier, queue = (sum(queue) / len(queue) for queue in queues)
            service.readings |= {"queue_before": earlier, "queue_after": queue}
            if queue >= _QUEUE_FACTOR * max(earlier, 1.0):
                service.told.append("queue")
                text = f"waiting requests {earlier:.1f} -> {queue:.1f}, at {load:.1f} times the load"
                found.append(self._finding(service, swap, "queue", text, "tell"))
        return found

    def _agreed(
        self, service: Service, cause: str, after: tuple[int, int], before: tuple[int, int], large: bool
    ) -> bool:
        """Whether it is time to look, and this is the look at which `cause` is believed."""
        looks = service.looks.setdefault(cause, Looks())
        if cause in service.told or not looks.due(after[1], _LEAST):
            return False
        looks.take(after[1], _GROWTH)
        level = looks.spend(_ERROR_RATE)
        worse = large and seq.count_rise(after, before) <= level
        service.strikes[cause] = service.strikes.get(cause, 0) + 1 if worse else 0
        if service.strikes[cause] < _STRIKES:
            return False
        service.told.append(cause)
        return True

    def _finding(self, service: Service, swap: Swap, cause: str, text: str, action: Action) -> Finding:
        return Finding(
            cause=f"engine-{cause}",
            key=(swap.engine, swap.version),
            action=action,
            reason=f"{swap.engine}: {text} since version {swap.version}",
            details={"engine": swap.engine, "version": str(swap.version), "to": str(swap.previous)},
        )


def _failed(calls: Sequence[ServedCall]) -> tuple[int, int]:
    return sum(call.failed for call in calls), len(calls)


def _quantile(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(_SLOW * len(ordered)) - 1)]


def _between(first: Seen, last: Seen) -> dict[float, int]:
    """Answers between two looks whose first token came within each bound."""
    return {
        bound: round(count - first.figures.first_token.get(bound, 0.0))
        for bound, count in last.figures.first_token.items()
    }


def _bound(counts: Mapping[float, int]) -> float:
    """The smallest bound within which 95 % came."""
    return next(bound for bound, count in counts.items() if count >= _SLOW * counts[math.inf])

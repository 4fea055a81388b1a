"""Spans and events of one call, put together as they come: in any order, over several exports, some of them twice.

    exports -> [by tenant, trace and span] -> Gathered: a span and its events, as soon as they tell a whole call

A span that carries its messages is whole at once. Events wait for their span, because it alone knows when the call
began and to which conversation it belongs; messages that come one by one wait until no more have come for a while. What
is not whole in time goes on with what there is. The buffer is bounded; what had to leave it early is counted.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

from adapters.intake.otlp import genai, openinference
from adapters.intake.otlp.records import Export, Key, Log, Span

Place = tuple[str, Key]
"""Tenant and span."""


class JoinSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How spans and events become calls."""

    tenant: str = "default"
    """Whose calls they are, unless a key or the attribute below says otherwise."""
    tenant_attribute: str = ""
    """Resource attribute whose value names the tenant, say "service.namespace"; its senders are believed."""
    trace_is_trajectory: bool = True
    """Calls without gen_ai.conversation.id or session.id belong together if they share a trace. Off, they are linked by
    what they say: right where one trace holds many tasks, say those of a nightly job."""
    join_seconds: float = 30.0
    """How long a span waits for its events, and events for their span."""
    settle_seconds: float = 2.0
    """Messages that come as one event each are whole when none has come for so long."""
    max_waiting: int = 20_000
    """Calls that wait; beyond that the oldest go on with what there is."""
    max_waiting_mib: int = 128
    """The same in bytes of the exports that they came in."""
    remembered: int = 50_000
    """Calls that are known to be done, so that what comes again, or late, is not taken for another one."""


class Gathered(msgspec.Struct):
    """What has come of one call."""

    place: Place
    since: float
    """Seconds on the clock of the joiner."""
    caller: str = ""
    touched: float = 0.0
    span: Span | None = None
    details: Log | None = None
    events: dict[tuple[object, ...], Log] = {}
    """By time, name, body, and number among its equals in an export: the same one may come again."""
    size: int = 0
    forced: bool = False
    """It goes on whatever is missing."""

    @property
    def messages(self) -> list[Log]:
        """Its events in the order of their times, as far as these tell them apart."""
        return sorted(self.events.values(), key=lambda event: event.at)


class Joiner:
    """The calls that wait. One event loop, no locks."""

    def __init__(self, settings: JoinSettings) -> None:
        self._settings = settings
        self._waiting: OrderedDict[Place, Gathered] = OrderedDict()
        self._done: OrderedDict[Place, None] = OrderedDict()
        self._whole: dict[Place, None] = {}
        self.bytes = 0
        self.counts: Counter[str] = Counter()
        """spans, events; other: not of a call; repeated: of a call that was done; evicted: went on early."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """There is no room; only what cannot be passed on stays for so long."""
        return len(self._waiting) > self._settings.max_waiting or self.bytes > self._settings.max_waiting_mib << 20

    def add(self, export: Export, now: float, *, size: int, tenant: str = "", caller: str = "") -> None:
        """Take in an export.

        Args:
            now: seconds on any clock that does not jump.
            size: bytes that it came in.
            tenant: whose it is for certain; empty: as the settings say.
        """
        share = size // max(1, len(export.spans) + len(export.logs))
        for span in export.spans:
            self.counts["spans"] += 1
            if not genai.is_call(span.attributes) and not openinference.is_call(span.attributes):
                self.counts["other"] += 1
            elif (found := self._gathered((tenant or self._tenant(span), span.key), now, share)) is not None:
                found.span, found.caller = span, caller
                self._look(found)
        equals: Counter[tuple[object, ...]] = Counter()
        for log in export.logs:
            self.counts["events"] += 1
            if log.name != genai.DETAILS and log.name != genai.CHOICE and log.name not in genai.ROLES:
                self.counts["other"] += 1
            elif (found := self._gathered((tenant or self._tenant(log), log.key), now, share)) is not None:
                if log.name == genai.DETAILS:
                    found.details = log
                else:
                    key = (log.at, log.name, msgspec.msgpack.encode(log.body))
                    found.events[*key, equals[log.key, *key]] = log
                    equals[log.key, *key] += 1
                found.caller = caller
                self._look(found)

    def take(self) -> list[Gathered]:
        """What is whole as soon as its last part is there. Pass it on, then call `settle`, or `put_back`."""
        self._make_room()
        found = [one for place in self._whole if (one := self._waiting.pop(place, None)) is not None]
        self._whole.clear()
        self.bytes -= sum(one.size for one in found)
        return found

    def take_due(self, now: float) -> list[Gathered]:
        """As `take`, with what has waited for long enough: to be called every now and then."""
        own = self._settings
        for one in list(self._waiting.values()):
            ended = one.span is not None and (one.span.failed or any(e.name == genai.CHOICE for e in one.messages))
            if now - one.since >= own.join_seconds or (ended and now - one.touched >= own.settle_seconds):
                self._force(one)
        return self.take()

    def take_all(self) -> list[Gathered]:
        """Everything, whole or not: the process ends."""
        for one in self._waiting.values():
            self._force(one)
        return self.take()

    def settle(self, taken: Sequence[Gathered]) -> None:
        """These were passed on: what comes of them from now on comes too late."""
        for one in taken:
            self._done[one.place] = None
        while len(self._done) > self._settings.remembered:
            self._done.popitem(last=False)

    def put_back(self, taken: Sequence[Gathered]) -> None:
        """These could not be passed on."""
        for one in reversed(taken):
            newer = self._waiting.pop(one.place, None)
            if newer is not None:
                one.span, one.details = newer.span or one.span, newer.details or one.details
                one.events |= newer.events
                self.bytes -= newer.size
            self._waiting[one.place] = one
            self._waiting.move_to_end(one.place, last=False)
            self.bytes += one.size
            self._force(one)

    def _gathered(self, place: Place, now: float, size: int) -> Gathered | None:
        if place in self._done:
            self.counts["repeated"] += 1
            return None
        found = self._waiting.get(place)
        if found is None:
            found = self._waiting[place] = Gathered(place, now, events={})
        found.touched = now
        found.size += size
        self.bytes += size
        return found

    def _look(self, one: Gathered) -> None:
        """Whether nothing more is to be waited for."""
        span = one.span
        if span is None:
            return
        carries = genai.has_messages(span.attributes) or openinference.is_call(span.attributes)
        if carries or (one.details is not None and genai.has_messages(one.details.attributes)):
            self._whole[one.place] = None

    def _force(self, one: Gathered) -> None:
        one.forced = True
        self._whole[one.place] = None

    def _make_room(self) -> None:
        """Make the oldest go on until the others fit."""
        if not self.full:
            return
        number, size = len(self._waiting), self.bytes
        for one in self._waiting.values():
            if number <= self._settings.max_waiting and size <= self._settings.max_waiting_mib << 20:
                return
            number, size = number - 1, size - one.size
            if one.place not in self._whole:
                self.counts["evicted"] += 1
                self._force(one)

    def _tenant(self, record: Span | Log) -> str:
        named = record.resource.get(self._settings.tenant_attribute) if self._settings.tenant_attribute else None
        return named if isinstance(named, str) and named else self._settings.tenant

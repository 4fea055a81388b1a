"""What must hold whatever the weather: each promise has a name, is looked at all the time, and says what broke it."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from actors.messages import BatchOrder, Message, Verdict
from actors.messages.signing import PublicKeys, record_problem
from actors.store import Store
from tests.simulation.policies import SimulatedEngine
from tests.support.traffic import unjoined

PROMISES = {
    "lost_exchange": "every call of a conversation is a step of exactly one trajectory",
    "lost_outcome": "every report finds its run",
    "counted_twice": "a run trains once, whatever is reported of it later",
    "two_swaps": "one engine at a time is out of service for a swap",
    "unverified": "what serves was promoted by a signed verdict, weights and label",
    "parked": "no good record is given up",
    "paused": "an engine that was paused for a swap is resumed",
    "queue": "no queue grows without bound",
    "silent": "learning that stands still says what it waits for",
}
QUEUE = 5000
"""Records in an inbox; what the pools may hold is theirs to say."""
_A_RUN = 3
"""Records of a run that one actor hears of: that it closed, what was thought of it, what was reported."""
RESUMED = 120.0 / 3600.0
"""Hours that an engine stays paused that did not hear the swap program's resume: the next look resumes it, which may
come after a daemon's death (45 s)."""
STANDS = 4000.0
"""Seconds after which a call that is in no trajectory is lost: it closes after 900 s without another, or in a minute
when its beginning is missing; the rest is for daemons that died meanwhile."""


class Broken(msgspec.Struct, frozen=True):
    promise: str
    what: str
    runs: int
    """That had begun."""
    hours: float


class Watcher:
    """Looks on."""

    def __init__(self, keys: PublicKeys, now: Callable[[], tuple[int, float]], first: str) -> None:
        self._keys, self._now = keys, now
        self.broken: list[Broken] = []
        self._said: set[tuple[str, str]] = set()
        self._promoted: dict[int, str] = {0: first}
        """Manifest digest by version."""
        self._held = self._begun = 0
        """Runs that began while the disk was full, and all that did."""
        self._out: set[str] = set()
        self._paused: dict[str, float] = {}
        """Hours at which an engine that no swap is at was first seen paused."""
        self._ordered: Counter[str] = Counter()
        self._orders: set[str] = set()

    def seen(self, message: Message) -> None:
        match message:
            case Verdict(decision="promote") as verdict:
                if not record_problem(verdict, self._keys):
                    self._promoted.setdefault(verdict.version, verdict.manifest)
            case BatchOrder() as order if order.id not in self._orders:
                self._orders.add(order.id)
                self._ordered.update(order.trajectories)
                if twice := [key for key in order.trajectories if self._ordered[key] > 1]:
                    self._break("counted_twice", f"{twice[0]} is in two orders")
            case _:
                pass

    def swapping(self, engine: str, what: str) -> None:
        if what == "ends":
            self._out.discard(engine)
            return
        others = self._out - {engine}  # the same one again, to go back to what it had: still one engine out
        if others:
            self._break("two_swaps", f"{engine} is paused while {', '.join(sorted(others))} is")
        self._out.add(engine)

    def swapped(self, engine: SimulatedEngine) -> None:
        if engine.paused:
            self._break("paused", f"{engine.name} with v{engine.current}, when its swap was over")

    def parked(self, actor: str, why: str) -> None:
        self._break("parked", f"the {actor}'s: {why}")

    def looked(
        self, engines: Mapping[str, SimulatedEngine], shadow: str, inboxes: Mapping[str, int], *, full: bool = False
    ) -> None:
        begun, hours = self._now()
        for name, engine in engines.items():
            if not engine.paused:
                self._paused.pop(name, None)
            elif self._paused.setdefault(name, hours) + RESUMED < hours:
                self._break("paused", f"{name} with v{engine.current}")
            if name == shadow:
                continue
            if engine.current not in self._promoted:
                self._break("unverified", f"{name} serves v{engine.current}, which nobody promoted")
            elif engine.manifest not in ("", self._promoted[engine.current]):
                self._break("unverified", f"{name} says v{engine.current}, and serves other weights than were promoted")
        self._held += full * (begun - self._begun)
        self._begun = begun
        for name, records in inboxes.items():
            if records > QUEUE + _A_RUN * self._held:
                self._break("queue", f"{records} records wait for the {name}")

    def trained(self, counts: Mapping[str, int]) -> None:
        """What the learner learned from, by trajectory."""
        for run, times in counts.items():
            if times > 1:
                self._break("counted_twice", f"{run} trained {times} times")

    def silent(self, runs: int, sentence: str) -> None:
        """Nothing happened for `runs` runs, and `sentence` is what status says, if anything."""
        if not sentence:
            self._break("silent", f"nothing for {runs} runs, and status gives no reason")

    async def audit(
        self, store: Store, sent: Collection[str], said: Mapping[str, float], written: Collection[str], now: float
    ) -> None:
        """At the end, when all that is on its way has come."""
        open_calls = [one.id for one in await store.open_exchanges() if now - one.started > STANDS]
        known = {one.id for one in await store.exchanges(list(sent))} if sent else set[str]()
        lost = [*open_calls, *(name for name in sent if name not in known)]
        if lost:
            self._break("lost_exchange", f"{len(lost)} of {len(sent)}, {lost[0]} among them")
        apart: dict[str, set[str]] = {}
        for run in await store.recent_closed(1_000_000):
            for step in run.steps:
                apart.setdefault(step.exchange_id, set()).add(run.id)
        double = [name for name in sent if len(apart.get(name, ())) > 1]
        if double:
            self._break("lost_exchange", f"{double[0]} is in {len(apart[double[0]])} trajectories")
        waiting = await unjoined(store)
        missing = [name for name in said if name in waiting or name not in written]
        if missing:
            self._break("lost_outcome", f"{len(missing)} of {len(said)}, {missing[0]} among them")

    def _break(self, promise: str, what: str) -> None:
        assert promise in PROMISES
        if (promise, what) not in self._said and len(self.broken) < 20:
            self._said.add((promise, what))
            runs, hours = self._now()
            self.broken.append(Broken(promise, what, runs, round(hours, 3)))

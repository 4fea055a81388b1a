"""What is looked into after a drift: which tools there were before, whether it was looked into, when the next round of
probing is due. It survives a restart; the lessons that come of it are the experiencer's.
"""

from collections.abc import Callable

import msgspec
import structlog

from actors.experience.probing import Prober
from actors.experience.probing_round import ProbeFinding
from actors.messages import Directive, Trajectory
from actors.ports.errors import AdapterError
from actors.rollout.errors import EpisodeLost
from actors.store import Store
from actors.system.errors import DependencyUnavailable

_log = structlog.get_logger(__name__)
_STATE = "experiencer/state"
_FORMER = 256
"""Names of former tools that are remembered."""
ROUNDS = 3
"""Of probing for one drift at most: what three did not find needs another policy."""
_AGAIN_SECONDS = 60.0
"""Between two rounds, so that what was found is used in the next."""
_DRIFT_SECONDS = 300.0
"""Within which another report of a drift to the same tools is the same drift."""


class _State(msgspec.Struct):
    """What outlives the process beside the lessons."""

    known: tuple[str, ...] = ()
    """The sandbox's tools before the drift that was looked into last."""
    former: tuple[str, ...] = ()
    """Tools of earlier times."""
    now: tuple[str, ...] = ()
    """Its tools after that; empty before the first drift."""
    directive: str = ""
    """The drift that was looked into last."""
    since: float = 0.0
    """When that drift was first heard of."""
    rounds: int = 0
    """Rounds of probing done for it."""
    due: float = 0.0
    """When the next round is due, 0 for no more."""


class Inquiry:
    """The state of probing."""

    def __init__(
        self,
        *,
        store: Store,
        prober: Prober | None,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._prober, self._clock = store, prober, clock
        self._state = _State()
        self._dirty = False
        """The state changed and is saved with the next batch or tick, when the lessons that go with it are committed. A
        crash in between probes once more instead of never."""

    @property
    def since(self) -> float:
        """When the last drift was first heard of; 0 for never."""
        return self._state.since

    @property
    def due(self) -> bool:
        """Whether another round of probing is due."""
        return self._prober is not None and 0 < self._state.due <= self._clock()

    async def start(self) -> None:
        """Read the state.

        Raises:
            DependencyUnavailable: the sandbox does not say which tools it has.
        """
        self._dirty = False
        data = await self._store.state_get(_STATE)
        try:
            self._state = msgspec.msgpack.decode(data, type=_State) if data is not None else _State()
        except msgspec.DecodeError as error:
            _log.warning("experiencer_state_unreadable", error=str(error))
            self._state = _State()
        if self._prober is not None and not self._state.known:
            # Before anything has drifted: later it would be too late to know what was there before.
            self._state.known = self._tools(self._prober)
            self._dirty = True
            await self.save()

    async def save(self) -> None:
        """Write the state if it changed."""
        if self._dirty:
            self._dirty = False
            await self._store.state_put(_STATE, msgspec.msgpack.encode(self._state))

    def heard(self, directive: Directive) -> frozenset[str] | None:
        """Take note of a drift: the sandbox's tools that are gone; None if there is nothing to be probed.

        Raises:
            DependencyUnavailable: the sandbox does not say which tools it has.
        """
        now, state = self._clock(), self._state
        if self._prober is None:
            state.since, self._dirty = now, True
            return None
        tools = self._tools(self._prober)
        if directive.id != state.directive:
            if state.directive and tools == state.now and now - state.since < _DRIFT_SECONDS:
                _log.info("drift_known", directive=directive.id)
                return None
            known = state.now or state.known
            former = tuple(dict.fromkeys((*state.known, *state.former)))[:_FORMER]
            self._state = _State(known=known, former=former, now=tools, directive=directive.id, since=now)
        return frozenset(self._state.known) - frozenset(tools)

    async def probe(
        self,
        take: Callable[[ProbeFinding, frozenset[str]], None],
        explained: Callable[[], frozenset[str]],
        asker: Callable[[frozenset[str]], Callable[[str], str]],
    ) -> tuple[Trajectory, ...]:
        """One round; plans the next if it left something open. Returns what was played.

        Args:
            take: is given each finding, and the names of tools that are new.
            explained: tools that lessons speak of, asked when all findings are taken.
            asker: given tools, which of them a goal asks for.

        Raises:
            DependencyUnavailable: the sandbox or its engine are away.
        """
        assert self._prober is not None
        state = self._state
        try:
            gone = frozenset(state.known) - frozenset(self._tools(self._prober))
            label = f"{state.directive}-{state.rounds}"
            report = await self._prober.probe(state.known, label, state.former, asker(gone))
        except (EpisodeLost, AdapterError) as error:
            raise DependencyUnavailable(f"probing: {error}") from error
        new = frozenset(report.tools) - frozenset(state.known)
        for found in report.findings:
            take(found, new)
        unexplained = new - explained()
        rounds, now = state.rounds + 1, self._clock()
        wanted = frozenset(report.open) if not report.findings else frozenset(report.open) - frozenset(report.tools)
        again = bool(wanted or unexplained) and rounds < ROUNDS
        due = now + _AGAIN_SECONDS if again else 0.0
        self._state = msgspec.structs.replace(state, now=report.tools, rounds=rounds, due=due)
        self._dirty = True
        return report.trajectories

    def _tools(self, prober: Prober) -> tuple[str, ...]:
        try:
            return prober.tools()
        except AdapterError as error:
            raise DependencyUnavailable(f"sandbox: {error}") from error

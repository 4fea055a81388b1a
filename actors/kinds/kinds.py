"""`Kinds`: what a run is like, and how its agent has fared.

    run  ->  agent, with an estimate of success  ->  neighbourhood of its goal

One object a process, told by the curator, which also saves it. Bounded; deterministic in what it was told.
"""

from collections.abc import Collection, Mapping

import msgspec
import structlog

from actors.kinds.agents import Agent, Agents
from actors.kinds.estimates import Estimates, Piece
from actors.kinds.levels import Levels
from actors.kinds.neighbourhoods import Leader
from actors.messages import Trajectory, agent_of, concerns
from actors.statistics.parties import party_of

_log = structlog.get_logger(__name__)
_GUIDED = "|guided"
"""Runs that saw lessons are an arm of their own: their success says nothing of those that did not."""


class _State(msgspec.Struct, frozen=True):
    agents: list[tuple[str, str, Agent]]
    pieces: list[Piece]
    scores: list[float]
    moved: dict[int, float]
    places: list[tuple[str, Leader]]
    known: list[tuple[str, str, list[int]]]


class Kinds:
    """Agents, estimates of their success, and which goals are alike."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.estimates = Estimates()
        self.levels = Levels()
        """Of goals; the curriculum tells it."""
        self._saved = b""

    def kind(self, run: Trajectory) -> str:
        """The neighbourhood of `run`'s goal; nothing is learned by asking."""
        return self.levels.alike(run.goal)

    def names(self, run: Trajectory) -> tuple[str, str]:
        """The agent, guided runs apart, and within it the neighbourhood."""
        _, agent = self._path(run)
        return agent, f"{agent}|{self.kind(run)}"

    def tell(self, run: Trajectory) -> None:
        """How `run` went, or what that was corrected to; without an outcome it says nothing."""
        if run.outcome is not None:
            self.agents.meet(run)
            party, path = party_of(run.tenant, run.caller), self._path(run)
            self.estimates.tell(Piece(run.id, party, agent_of(run), path, run.outcome, run.max_version))

    def estimate(self, run: Trajectory) -> float | None:
        """Success that was to be expected of `run`, its own outcome left out; None while nothing is known."""
        return self.estimates.estimate(self._path(run), version=run.max_version, without=run.id)

    def drifted(self, details: Mapping[str, str]) -> None:
        """The world of an agent, of a tenant or of all has changed: what they scored says nothing any more."""
        self.estimates.forget(lambda piece: concerns(details, piece.agent))

    @property
    def runs(self) -> list[str]:
        """Ids of the runs whose outcomes are remembered."""
        return [piece.id for piece in self.estimates.pieces()]

    def erase(self, runs: Collection[str]) -> None:
        """Forget what these runs came to, for somebody had them erased."""
        if runs:
            self.estimates.forget(lambda piece: piece.id in runs)

    def _path(self, run: Trajectory) -> tuple[str, str]:
        return run.tenant, self.agents.find(run) + (_GUIDED if run.experience_ids else "")

    def to_save(self) -> bytes | None:
        """What `load` takes, None if nothing has changed since it was last asked for."""
        data = msgspec.msgpack.encode(_State(self.agents.state(), *self.estimates.state(), *self.levels.state()))
        if data == self._saved:
            return None
        self._saved = data
        return data

    def load(self, data: bytes | None) -> None:
        """Take up what `to_save` gave; what cannot be read is as if nothing had been kept."""
        try:
            state = None if data is None else msgspec.msgpack.decode(data, type=_State)
        except msgspec.DecodeError as error:
            _log.warning("kinds_unreadable", error=str(error), bytes=len(data or b""))
            return
        if state is not None:
            self.agents = Agents(state.agents)
            self.estimates = Estimates(state.pieces, state.scores, state.moved)
            self.levels = Levels(state.places, state.known)

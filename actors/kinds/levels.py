"""Which kind a goal counts as: one rule for whoever plans, caps, compares or counts by kinds of goal.

    goal  ->  masked goal  ->  its neighbourhood  ->  its agent  ->  the rest       the first of which enough is known

Enough is `ENOUGH` requests; all attempts at one task are one request. Goals of all tenants are in one place, as digests
of words, and no outcome is kept.
"""

from collections.abc import Iterable
from zlib import crc32

from actors.kinds.clusters import cluster_of
from actors.kinds.neighbourhoods import Leader, Neighbourhoods
from actors.kinds.remembered import Remembered
from actors.messages import Trajectory, agent_of
from actors.messages.bounded import Bounded
from actors.statistics.parties import party_of

ENOUGH = 8
"""Requests by which a level is known. Two thirds of an estimate are its own then, at the strength that levels start
with (`actors.kinds.estimates`), and none of its rates has a standard error above 0.18."""
REST = "rest"
"""The kind of what is like nothing that is known."""
KNOWN = 2048
"""Masked goals, neighbourhoods and agents that are remembered; the one longest without a request goes first."""
PLACES = 256
"""Neighbourhoods with words."""
_NEAR, _AGENT = "~", "agent "
"""What the names of neighbourhoods and agents begin with: a neighbourhood is named after its first goal's cluster."""
_LONGEST = 2000
"""Characters of a goal that say what kind it is, as in `clusters`."""
_LATELY = 4096
"""Goals of which it is remembered what they are near to, until the next one is learned."""
_SANDBOX = "sandbox"
"""Whose the sandbox's goals are."""


class Levels:
    """What is known of goals, neighbourhoods and agents. Bounded; deterministic in what it was told.

    Args:
        places, known: what `state` gave in an earlier life.
    """

    def __init__(
        self, places: Iterable[tuple[str, Leader]] = (), known: Iterable[tuple[str, str, list[int]]] = ()
    ) -> None:
        self._places = Neighbourhoods(PLACES, places)
        self._known = Remembered[list[int]](KNOWN, known)
        """By name, of all levels: digests of the newest requests."""
        self._lately: Bounded[str, tuple[str, str]] = Bounded(_LATELY)

    def tell(self, run: Trajectory) -> None:
        """Learn from a run that had an outcome; the same request again teaches nothing."""
        played = run.source == "sandbox"
        # A digest: 32 bits tell eight requests apart, and name nobody.
        request = crc32(((played and run.group) or run.id).encode("utf-8", "replace"))
        party = _SANDBOX if played else party_of(run.tenant, run.caller)
        own = cluster_of(run.goal)
        if request in (self._known.look(own) or ()):
            return
        names = [own, _NEAR + self._places.place(run.goal[:_LONGEST], party)]
        for name in names if played else [*names, _AGENT + agent_of(run)]:
            requests = self._known.get(name) or []
            if request not in requests:
                self._known.put(name, party, [*requests, request][-ENOUGH:])
        self._lately.clear()

    def of(self, run: Trajectory) -> str:
        """The kind of `run`."""
        return self.kind(run.goal, "" if run.source == "sandbox" else agent_of(run))

    def kind(self, goal: str, agent: str = "") -> str:
        """The kind of `goal`, at the level where enough is known; nothing is learned by asking.

        Args:
            agent: its name (`agent_of`); none has a task of the sandbox.
        """
        for name in (*self._found(goal), _AGENT + agent):
            if len(self._known.look(name) or ()) >= ENOUGH:
                return name
        return REST

    def alike(self, goal: str) -> str:
        """The neighbourhood of `goal`, however little is known of it: its own where nothing is near."""
        return self._found(goal)[1]

    def _found(self, goal: str) -> tuple[str, str]:
        """Its cluster and its neighbourhood."""
        goal = goal[:_LONGEST]
        if goal not in self._lately:
            self._lately[goal] = cluster_of(goal), _NEAR + self._places.near(goal)
        return self._lately[goal]

    def state(self) -> tuple[list[tuple[str, Leader]], list[tuple[str, str, list[int]]]]:
        """Everything: neighbourhoods, and by level who asked for it."""
        return self._places.state(), list(self._known)

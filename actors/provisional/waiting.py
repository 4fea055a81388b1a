"""`Provisional`: runs that wait to be known, what follows them, and the chance that they went well.

    closed run -> waits for what happens next (`RIPE`) -> reported: the model learns -> not reported: a chance

One object a process, told by the curator, which also saves it. A run that was reported at once waits as well: what the
model learns from must look like what it will be asked about. Bounded: texts of a run are kept until it is ripe,
features until it is reported or makes room. After a restart the runs that wait come again from the store.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import Trajectory
from actors.provisional.features import Vector, vector
from actors.provisional.outcome_model import OutcomeModel, Piece
from actors.provisional.signals import NOTHING, Aftermath, follows, heard, reacted
from actors.provisional.transcript import Transcript, transcript

RIPE = 3600.0
"""Seconds after its end that a run's aftermath is waited for, unless the user has reacted before. What follows is seen
when it closes itself, by default 900 idle seconds after its end; what comes later than this is left out, for what is
known of a run must not depend on how late the question is asked."""
OPEN = 2_048
"""Runs whose texts are kept at a time, some 10 KB each: at ten a minute fourteen times what is needed."""
KNOWN = 8_192
"""Runs whose features are kept: at ten a minute, more than half a day of runs that nobody has reported yet."""
_LOOKED = 64
"""Open runs that a new one is held against, the newest."""


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says of a run that nobody reported."""

    id: str
    chance: float
    """Of success, calibrated."""
    weight: float
    """How far that counts, 0 to 1."""


class _Open(msgspec.Struct):
    """A run whose aftermath may still come."""

    run: Transcript
    after: Aftermath
    outcome: float | None


class _Ripe(msgspec.Struct):
    """A run of which all is known but its outcome."""

    agent: str
    party: str
    version: int
    vector: Vector
    said: float | None
    by: int


class Provisional:
    """Reads runs and what follows them; learns from what is reported, and says what to make of the rest."""

    def __init__(self) -> None:
        self.model = OutcomeModel()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._ripe: OrderedDict[str, _Ripe] = OrderedDict()
        self._given: OrderedDict[str, None] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """Runs read; follow_ups that were taken in; late ones, after their run was ripe; runs that made room; reported
        runs; read_again: of those, without what followed them; contradicted: reported against what the model was surer
        of than nine in ten; forgotten: unreported, when others needed the room."""

    def __len__(self) -> int:
        return len(self._open) + len(self._ripe)

    @property
    def figures(self) -> Mapping[str, int]:
        """For people and metrics."""
        counts = {**self.counts, **{f"model_{name}": number for name, number in self.model.counts.items()}}
        return {f"provisional_{name}": number for name, number in counts.items()}

    def saw(self, run: Trajectory, *, exam: bool = False) -> None:
        """A production run has closed.

        Args:
            exam: the gate's: it tells of the run before it, and nothing is learned from it or said of it.
        """
        if run.source != "production" or run.id in self._open or run.id in self._ripe:
            return
        if self.model.knows(run.id) is not None:
            return
        read = transcript(run)
        self._follow(read)
        if exam:
            return
        self.counts["runs"] += 1
        self._open[run.id] = _Open(read, NOTHING, run.outcome)
        while len(self._open) > OPEN:
            self._ripen(next(iter(self._open)))
            self.counts["made_room"] += 1

    def _follow(self, later: Transcript) -> None:
        if later.continues and later.continues in self._ripe:
            self.counts["late"] += 1
        newest = list(self._open)[-_LOOKED:]
        for key in {*newest, later.continues} & self._open.keys():
            before = self._open[key]
            after = follows(before.run, before.after, later)
            if after is not before.after:
                before.after = after
                self.counts["follow_ups"] += 1

    def told(self, run: Trajectory) -> None:
        """Somebody reported how `run` went, or corrected it; never what this object said of it."""
        if run.outcome is None or run.provisional:
            return
        if run.id in self._open:
            self._open[run.id].outcome = run.outcome
            return
        known = self.model.knows(run.id)
        ripe = self._ripe.pop(run.id, None)
        if known is not None:
            self.model.tell(msgspec.structs.replace(known, outcome=run.outcome))
        elif ripe is not None:
            self._learn(run.id, ripe, run.outcome)
        else:
            # It made room, or was ordered before a restart: what followed it is not known any more, the run is.
            self.counts["read_again"] += 1
            self.saw(run)

    def _learn(self, key: str, ripe: _Ripe, outcome: float) -> None:
        self._given.pop(key, None)
        self.counts["reported"] += 1
        if ripe.said is not None and abs(ripe.said - outcome) > 0.9:
            self.counts["contradicted"] += 1
        self.model.tell(
            Piece(
                id=key, party=ripe.party, agent=ripe.agent, version=ripe.version, outcome=outcome, vector=ripe.vector,
                said=ripe.said, by=ripe.by,
            )
        )  # fmt: skip

    def ripen(self, now: float) -> None:
        """Settle what has waited long enough."""
        for key, one in list(self._open.items()):
            if now - one.run.ended >= RIPE or reacted(one.run, one.after):
                self._ripen(key)

    def _ripen(self, key: str) -> None:
        one = self._open.pop(key)
        said = heard(one.run, one.after)
        # What the user said later stands where what was said at once would.
        read = msgspec.structs.replace(one.run, turns=(*one.run.turns, *one.after.turns))
        found = vector(read, said)
        self.model.read(one.run.agent, said)
        serving = self.model.serving
        ripe = _Ripe(
            one.run.agent, one.run.party, one.run.version, found, self.model.chance(one.run.agent, found),
            serving.number if serving else 0,
        )  # fmt: skip
        if one.outcome is not None:
            self._learn(key, ripe, one.outcome)
            return
        self._ripe[key] = ripe
        while len(self._ripe) > KNOWN:
            gone, _ = self._ripe.popitem(last=False)
            self._given.pop(gone, None)
            self.counts["forgotten"] += 1

    def due(self, now: float, limit: int) -> list[Chance]:
        """Ripe runs that nobody has reported and that the model may speak of, the newest `limit`; each once."""
        self.ripen(now)
        serving = self.model.serving
        if serving is None:
            return []
        weights: dict[str, float] = {}
        found: list[Chance] = []
        for key in reversed(self._ripe):
            one = self._ripe[key]
            weight = weights.setdefault(one.agent, self.model.weight(one.agent))
            if key in self._given or weight <= 0.0:
                continue
            chance = self.model.chance(one.agent, one.vector)
            assert chance is not None
            one.said, one.by = chance, serving.number
            self._given[key] = None
            found.append(Chance(id=key, chance=chance, weight=weight))
            if len(found) >= limit:
                break
        return found

    def give_again(self) -> None:
        """What `due` gave is not used: it is due once more."""
        self._given.clear()

    def erase(self, runs: Collection[str]) -> None:
        """Forget these runs, for somebody had them erased."""
        for key in runs:
            for kept in (self._open, self._ripe, self._given):
                kept.pop(key, None)
        self.model.erase(set(runs))

    @property
    def runs(self) -> list[str]:
        """Ids of all that is remembered."""
        return [*self._open, *self._ripe, *self.model.runs]

    def status(self, agents: int = 20) -> dict[str, Any]:
        """For `evolved status`, the dashboard and the API: skill and calibration by agent, signals, gaps."""
        model, serving = self.model, self.model.serving
        shown: Sequence[tuple[str, Any]] = list(serving.agents.items())[:agents] if serving else []
        return {
            "outcomes": len(model),
            "model": serving.number if serving else 0,
            "versions": [one.number for one in model.versions],
            "skill": msgspec.to_builtins(serving.skill) if serving else None,
            "weight": serving.skill.weight if serving else 0.0,
            "live": msgspec.to_builtins(model.live),
            "agents": {agent: {**msgspec.to_builtins(own), "weight": model.weight(agent)} for agent, own in shown},
            "signals": [
                {**msgspec.to_builtins(one), "coverage": one.coverage} for one in model.records()[: 11 * agents]
            ],
            "gaps": [msgspec.to_builtins(one) for one in model.gaps()[-agents:]],
            "waiting": len(self),
            "counts": dict(self.figures),
        }

"""The outcome model: V, the probability that a run succeeded, from what happened in it and after it.

    reported outcomes -> window (fair to parties) -> folds -> calibrated chances -> skill -> weight
                                                  -> all   -> weights, a version

It learns from reported outcomes alone; the chance that judges it is of a fold that did not see the run (Stone 1974).
A version that is surely worse than another on outcomes that neither saw is not taken, or gives way.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from statistics import NormalDist
from zlib import crc32

import msgspec
import numpy as np
import structlog

from actors.provisional import skill as skills
from actors.provisional.features import SIZE, Vector, without
from actors.provisional.logistic import Floats, fit, matrix, platt, probability
from actors.provisional.signal_records import Record, Word, counted, fallen, precision
from actors.provisional.skill import ERROR, LEAST, Skill, measure, others_mean
from actors.statistics.parties import FairWindow, thinned

_log = structlog.get_logger(__name__)
STATE = "curator/outcomes"
"""Key of what is saved."""
WINDOW = 1_000
"""Reported outcomes that are learned from: the newest, by the party rule."""
FOLDS = 5
KEPT = 4
"""Versions that can be gone back to."""
FRESH = 24
"""Outcomes that came since a version was made, from which on it is held against others."""
_AGAIN = 0.1
"""Share of the window that must be new before the model is fitted again, and `_AT_LEAST` outcomes."""
_AT_LEAST = 8
GAP = 0.05
"""A chance that is surely so much above what was then reported of the same runs is an alarm."""
GAP_RUNS = 12
"""Runs of an agent and a version, reported and foretold, without which nothing is said of their gap."""
_AGENTS = 512
_FORMAT = 1


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose outcome was reported."""

    id: str
    party: str
    agent: str
    version: int
    """Policy weights that sampled it."""
    outcome: float
    vector: Vector
    said: float | None = None
    """The chance that it was given before its outcome was known; None where no model was there."""
    by: int = 0
    """The outcome model's version that said so."""
    sequence: int = 0
    """Outcomes that came before it."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned at one time."""

    number: int
    fitted: int
    """Sequence up to which outcomes had come."""
    outcomes: int
    weights: list[float]
    slope: float
    offset: float
    skill: Skill
    """Of held-out folds, over all agents."""
    agents: dict[str, Skill]

    def chances(self, vectors: Sequence[Vector]) -> Floats:
        """`(n,)`, calibrated."""
        return probability(self.slope * (matrix(vectors) @ np.asarray(self.weights)) + self.offset)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What was foretold of an agent's runs of one policy version, against what was reported of the same runs."""

    agent: str
    version: int
    runs: int
    foretold: float
    reported: float
    overrated: bool
    """Surely by more than `GAP`: what the policy has learned is to look successful."""


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    pieces: list[Piece]
    versions: list[Version]
    serving: int
    numbered: int
    sequence: int
    runs: dict[str, int]
    spoke: dict[str, dict[str, int]]


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    digest: str
    """sha256 of `body`."""
    body: str


class Fitted(msgspec.Struct, frozen=True):
    """A new version, and what its folds said of each run that they did not see."""

    version: Version
    held_out: dict[str, float]


def learn(pieces: Sequence[Piece], number: int, sequence: int) -> Fitted:
    """A version from `pieces`, the oldest first. Pure; takes some seconds, so not for an event loop."""
    newest = [piece.party for piece in reversed(pieces)]
    own = [pieces[len(pieces) - 1 - place] for place in reversed(thinned(newest))]
    rows = matrix([piece.vector for piece in own])
    outcomes = np.array([piece.outcome for piece in own])
    folds = np.array([crc32(piece.id.encode()) % FOLDS for piece in own])
    weights = fit(rows, outcomes)
    logits = np.zeros(len(own))
    for fold in range(FOLDS):
        seen = folds != fold
        if seen.any() and not seen.all():
            logits[~seen] = rows[~seen] @ fit(rows[seen], outcomes[seen])
    chances = np.zeros(len(own))
    for fold in range(FOLDS):
        seen = folds != fold
        slope, offset = platt(logits[seen], outcomes[seen])
        chances[~seen] = probability(slope * logits[~seen] + offset)
    agents = [piece.agent for piece in own]
    parties = [piece.party for piece in own]
    bases = others_mean(outcomes, agents)
    by_agent: defaultdict[str, list[int]] = defaultdict(list)
    for place, agent in enumerate(agents):
        by_agent[agent].append(place)
    each = {
        agent: measure(
            chances[places], outcomes[places], bases[places], [parties[place] for place in places],
            error=ERROR / len(by_agent),
        )
        for agent, places in by_agent.items()
    }  # fmt: skip
    slope, offset = platt(logits, outcomes)
    version = Version(
        number=number, fitted=sequence, outcomes=len(own), weights=[round(float(one), 5) for one in weights],
        slope=slope, offset=offset, skill=measure(chances, outcomes, bases, parties), agents=each,
    )  # fmt: skip
    return Fitted(version, {piece.id: float(chance) for piece, chance in zip(own, chances, strict=True)})


class OutcomeModel:
    """The window, the versions, and the signals' records. Bounded; deterministic in what it was told."""

    def __init__(self) -> None:
        self._pieces = FairWindow[Piece](WINDOW, lambda piece: piece.party)
        self._versions: list[Version] = []
        self._serving = 0
        self._numbered = 0
        self._sequence = 0
        self._tried = 0
        """Sequence at the last fit, taken or not."""
        self._runs: Counter[str] = Counter()
        self._spoke: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._live = skills.NONE
        self._quarantined: dict[str, frozenset[str]] = {}
        self._overrated: frozenset[str] = frozenset()
        self._changed = False
        self.counts: Counter[str] = Counter()
        """Outcomes told and corrected, fits, versions that were refused or rolled back, saved states that were not
        readable, agents that were too many to count."""

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def serving(self) -> Version | None:
        """The version that speaks; None while there is none."""
        return next((one for one in self._versions if one.number == self._serving), None)

    @property
    def versions(self) -> Sequence[Version]:
        """The oldest first."""
        return self._versions

    @property
    def runs(self) -> list[str]:
        """Ids of the runs whose outcomes are remembered."""
        return [piece.id for piece in self._pieces]

    @property
    def live(self) -> Skill:
        """What chances were worth that were given before the outcome was known, by the version that speaks."""
        return self._live

    @property
    def quarantined(self) -> Mapping[str, frozenset[str]]:
        """Signals that are kept apart, by agent."""
        return self._quarantined

    def read(self, agent: str, signals: Mapping[str, int]) -> None:
        """A run of `agent` was read, reported or not."""
        if agent not in self._runs and len(self._runs) >= _AGENTS:
            self.counts["agents_uncounted"] += 1
            return
        self._runs[agent] += 1
        # Saved with the next outcome: half a megabyte a minute would be much for some counts.
        self._spoke[agent].update(signals.keys())

    def chance(self, agent: str, one: Vector) -> float | None:
        """V of a run. None if no model has been fitted yet."""
        serving = self.serving
        if serving is None:
            return None
        kept = without(one, agent, self._quarantined.get(agent, frozenset()))
        return float(serving.chances([kept])[0])

    def weight(self, agent: str) -> float:
        """How far chances of `agent`'s runs count, 0 to 1.

        Decided over all agents; one alone is left out only where it is sure that the model knows nothing of it, where
        what it foretells has drawn away from what is reported, or where nothing was ever reported.
        """
        serving = self.serving
        own = None if serving is None else serving.agents.get(agent)
        if serving is None or own is None or own.high < 0.0 or agent in self._overrated or self._live.high < 0.0:
            return 0.0
        return serving.skill.weight

    def tell(self, piece: Piece) -> bool:
        """How a run went, as somebody reported it, or what that was corrected to; False if it says nothing."""
        if not isfinite(piece.outcome):
            self.counts["not_a_number"] += 1
            return False
        outcome = min(1.0, max(0.0, piece.outcome))
        known = next((one for one in self._pieces if one.id == piece.id), None)
        if known is not None:
            again = msgspec.structs.replace(known, outcome=outcome)
            self._keep([again if one.id == piece.id else one for one in self._pieces])
            self.counts["corrected"] += 1
            return True
        self._sequence += 1
        self._pieces.append(msgspec.structs.replace(piece, outcome=outcome, sequence=self._sequence))
        self.counts["told"] += 1
        self._changed = True
        return True

    def knows(self, run_id: str) -> Piece | None:
        """The run, if its outcome is remembered."""
        return next((one for one in self._pieces if one.id == run_id), None)

    def erase(self, runs: set[str]) -> None:
        """Forget these runs, for somebody had them erased; what was learned from them is learned anew."""
        if runs & set(self.runs):
            self._keep([one for one in self._pieces if one.id not in runs])
            self._versions.clear()
            self._tried = 0

    def _keep(self, pieces: Sequence[Piece]) -> None:
        self._pieces = FairWindow[Piece](WINDOW, lambda piece: piece.party, pieces)
        self._changed = True

    def to_learn(self) -> tuple[list[Piece], int, int] | None:
        """Arguments for `learn`, if it is time."""
        fresh = self._sequence - self._tried
        if len(self._pieces) < LEAST or (fresh < max(_AT_LEAST, _AGAIN * len(self._pieces)) and self._versions):
            return None
        return self._cleaned(), self._numbered + 1, self._sequence

    def _cleaned(self) -> list[Piece]:
        return [
            msgspec.structs.replace(
                one, vector=without(one.vector, one.agent, self._quarantined.get(one.agent, frozenset()))
            )
            for one in self._pieces
        ]

    def adopt(self, fitted: Fitted) -> bool:
        """Let a new version speak, unless it is surely worse than the one that does; then look at signals and gaps."""
        self._tried, self._changed = fitted.version.fitted, True
        self.counts["fits"] += 1
        self._go_back()
        serving = self.serving
        if serving is not None:
            fresh = [one for one in self._cleaned() if one.sequence > serving.fitted and one.id in fitted.held_out]
            own = np.array([fitted.held_out[one.id] for one in fresh])
            if fresh and _worse(own, serving.chances([one.vector for one in fresh]), fresh):
                self.counts["refused"] += 1
                self._look()
                return False
        self._numbered = fitted.version.number
        self._versions = [*self._versions, fitted.version][-KEPT:]
        self._serving = fitted.version.number
        self._look()
        return True

    def _go_back(self) -> None:
        """To an older version that is surely better on what came since the one that speaks was made."""
        serving = self.serving
        if serving is None:
            return
        fresh = [one for one in self._cleaned() if one.sequence > serving.fitted]
        vectors = [one.vector for one in fresh]
        for older in reversed([one for one in self._versions if one.number < serving.number]):
            if fresh and _worse(serving.chances(vectors), older.chances(vectors), fresh):
                _log.warning("outcome_model_rolled_back", version=serving.number, to=older.number, outcomes=len(fresh))
                self.counts["rolled_back"] += 1
                self._versions = [one for one in self._versions if one.number <= older.number]
                self._serving = older.number
                return

    def _look(self) -> None:
        """At signals whose precision falls, at gaps, and at what was said before it was known."""
        before = self._quarantined
        found: defaultdict[str, set[str]] = defaultdict(set)
        for (agent, signal), said in self._words().items():
            if fallen(counted(said)):
                found[agent].add(signal)
        self._quarantined = {agent: frozenset(signals) for agent, signals in found.items()}
        for agent, signals in self._quarantined.items():
            for signal in sorted(signals - before.get(agent, frozenset())):
                self.counts["quarantined"] += 1
                _log.warning("signal_quarantined", agent=agent, signal=signal)
        overrated = frozenset(gap.agent for gap in self.gaps() if gap.overrated)
        for agent in sorted(overrated - self._overrated):
            self.counts["overrated"] += 1
            _log.warning("agent_overrated", agent=agent)
        self._overrated = overrated
        foretold = [one for one in self._pieces if one.said is not None and one.by == self._serving]
        self._live = skills.NONE
        if foretold:
            outcomes = np.array([one.outcome for one in foretold])
            bases = others_mean(outcomes, [one.agent for one in foretold])
            chances = np.array([one.said for one in foretold], dtype=np.float64)
            self._live = measure(chances, outcomes, bases, [one.party for one in foretold])

    def _words(self) -> dict[tuple[str, str], list[Word]]:
        found: dict[tuple[str, str], list[Word]] = {}
        for one in self._pieces:
            for signal, said in one.vector.signals.items():
                right = (said > 0) == (one.outcome >= 0.5)
                found.setdefault((one.agent, signal), []).append(Word(one.party, right))
        return found

    def records(self) -> list[Record]:
        """Each signal's, by agent, the busiest agent first."""
        words = self._words()
        return [
            Record(
                signal=signal, agent=agent, runs=runs, spoke=self._spoke[agent][signal], known=len(own),
                precision=precision(own), quarantined=signal in self._quarantined.get(agent, frozenset()),
            )
            for agent, runs in self._runs.most_common()
            for signal in sorted(self._spoke[agent])
            for own in [counted(words.get((agent, signal), []))]
        ]  # fmt: skip

    def gaps(self) -> list[Gap]:
        """By agent and policy version, where enough runs were foretold and reported; the newest versions last."""
        found: defaultdict[tuple[str, int], list[Piece]] = defaultdict(list)
        newest: dict[str, int] = {}
        for one in self._pieces:
            if one.said is not None:
                found[one.agent, one.version].append(one)
                newest[one.agent] = max(newest.get(one.agent, -1), one.version)
        gaps: list[Gap] = []
        for (agent, version), own in sorted(found.items()):
            if len(own) < GAP_RUNS:
                continue
            apart = np.array([(one.said or 0.0) - one.outcome for one in own])
            low = float(apart.mean()) - _bound(apart)
            gaps.append(
                Gap(
                    agent=agent, version=version, runs=len(own),
                    foretold=float(np.mean([one.said or 0.0 for one in own])),
                    reported=float(np.mean([one.outcome for one in own])),
                    overrated=low > GAP and version == newest[agent],
                )
            )  # fmt: skip
        return gaps

    def to_save(self) -> bytes | None:
        """What `load` takes: JSON with its digest; None if nothing has changed since it was last asked for."""
        if not self._changed:
            return None
        self._changed = False
        body = msgspec.json.encode(
            _Body(
                pieces=list(self._pieces), versions=self._versions, serving=self._serving, numbered=self._numbered,
                sequence=self._sequence, runs=dict(self._runs),
                spoke={agent: dict(own) for agent, own in self._spoke.items()},
            )
        )  # fmt: skip
        digest = hashlib.sha256(body).hexdigest()
        return msgspec.json.encode(_Saved(format=_FORMAT, digest=digest, body=body.decode()))

    def load(self, data: bytes | None) -> None:
        """Take up what `to_save` gave; what cannot be read, or was changed, is as if nothing had been kept."""
        if data is None:
            return
        try:
            saved = msgspec.json.decode(data, type=_Saved)
            if saved.format != _FORMAT or hashlib.sha256(saved.body.encode()).hexdigest() != saved.digest:
                raise ValueError("its digest is another")
            body = msgspec.json.decode(saved.body, type=_Body)
            if any(len(one.weights) != SIZE for one in body.versions):
                raise ValueError("it has weights of another size")
        except (ValueError, msgspec.DecodeError) as error:
            self.counts["unreadable"] += 1
            _log.warning("outcome_model_unreadable", error=str(error), bytes=len(data))
            return
        self._keep(body.pieces)
        self._versions, self._serving, self._numbered = list(body.versions), body.serving, body.numbered
        self._sequence = body.sequence
        self._tried = max((one.fitted for one in body.versions), default=0)
        self._runs = Counter(body.runs)
        self._spoke = defaultdict(Counter, {agent: Counter(own) for agent, own in body.spoke.items()})
        self._look()
        self._changed = False


def _bound(values: Floats) -> float:
    """Half of the interval of a mean, one-sided at `ERROR`."""
    if len(values) < 2:
        return 1.0
    return NormalDist().inv_cdf(1.0 - ERROR) * float(values.std(ddof=1)) / sqrt(len(values))


def _worse(first: Floats, second: Floats, pieces: Sequence[Piece]) -> bool:
    """Whether `first` is surely worse than `second` on `pieces`, which neither has learned from."""
    if len(pieces) < FRESH:
        return False
    outcomes = np.array([one.outcome for one in pieces])
    apart = (first - outcomes) ** 2 - (second - outcomes) ** 2
    return float(apart.mean()) - _bound(apart) > 0.0

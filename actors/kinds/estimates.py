"""How likely runs of an agent succeed: its own estimate, shrunk towards its tenant's, which is shrunk towards a half.

At each level m = (S + k m') / (N + k): the posterior mean of a Beta prior with mean m' and strength k. An agent's k is
learned by prequential scores over a grid. An outcome weighs less the more came after it, and by 2^(-D / HALF) for D
nats of updates since (SPO, arXiv 2509.13232). No run is in its own estimate, tenants share nothing, and the party rule
holds at both levels. Kinds of goal below the agent's brought nothing (docs/measured.md).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite, log

import msgspec

from actors.kinds.remembered import Remembered
from actors.messages import Candidate
from actors.messages.bounded import Bounded
from actors.statistics.parties import FairWindow, set_aside, thinned

WINDOW = 64
"""Newest outcomes that a level looks at."""
REACH = 32
"""Outcomes after which one weighs 1/e."""
HALF = 0.06
"""Nats a token by which the policy has moved when an outcome weighs half; SPO's D_half."""
OUTCOMES = 4096
"""Remembered, of all kinds together."""
_NODES = 8192
"""Tenants and agents that are remembered."""
_VERSIONS = 1024
"""Weight versions of which it is known how far they are from others."""
_NOTHING = 0.5
"""Success of what nobody has heard of."""
_TENANT = 2.0
"""Strength of a tenant's level."""
_GRID = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Strengths that an agent's may have."""
_FIRST = 4.0
"""Strength of an agent's before anything is known."""
_KEPT = 1.0 - 1.0 / 512
"""Of the scores of strengths, an outcome on."""
_LARGEST = 1e6
"""What is beyond this, either side of 0, is no outcome; the learner's bound."""
_EPSILON = 0.01
"""Least probability of an outcome that is scored."""


class Piece(msgspec.Struct):
    """What came of one run."""

    id: str
    party: str
    agent: str
    """Its name when it ran, by which a drift names it."""
    path: tuple[str, str]
    """Where it counts: tenant and agent."""
    value: float
    version: int


class Estimates:
    """Of all agents.

    Args:
        pieces, scores, moved: what `state` gave in an earlier life.
    """

    def __init__(
        self, pieces: Iterable[Piece] = (), scores: Sequence[float] = (), moved: Mapping[int, float] = {}
    ) -> None:
        self._scores = dict.fromkeys(_GRID, 0.0) | dict(zip(_GRID, scores, strict=False))
        self._moved = Bounded[int, float](_VERSIONS)
        """By version: divergence along the updates that led there, nats a token."""
        self._moved.update(moved)
        self._begin(pieces)

    def _begin(self, pieces: Iterable[Piece]) -> None:
        self._log = Remembered[Piece](OUTCOMES)
        self._nodes = Remembered[FairWindow[Piece]](_NODES)
        for piece in pieces:
            self._add(piece)

    def __len__(self) -> int:
        return len(self._log)

    @property
    def strength(self) -> float:
        """Outcomes that the tenant's estimate is worth at an agent's."""
        return max(_GRID, key=lambda k: (self._scores[k], -abs(log(k / _FIRST))))

    def trained(self, candidate: Candidate) -> None:
        """The policy has moved from one version to the next."""
        moved = candidate.metrics.get("kl_update", 0.0)
        moved = min(1.0, max(0.0, moved)) if isfinite(moved) else 0.0
        if candidate.version not in self._moved:
            self._moved[candidate.version] = self._moved.setdefault(candidate.parent, 0.0) + moved

    def tell(self, piece: Piece) -> None:
        """Take in an outcome, or what a known one was corrected to."""
        known = self._log.get(piece.id)
        if not isfinite(piece.value) or abs(piece.value) > _LARGEST:
            return
        if known is not None:
            known.value = piece.value
        else:
            self._score(piece)
            self._add(piece)

    def estimate(self, path: tuple[str, str], *, version: int, without: str = "") -> float | None:
        """Success that was to be expected of a run; None while its tenant has no outcome but its own.

        Args:
            path: tenant and agent.
            version: newest weights that sampled in it.
            without: id of the run whose outcome is left out.
        """
        tenant, agent = (self._at(name, version, without) for name in path)
        if not tenant[1]:
            return None
        return _shrunk(agent, _shrunk(tenant, _NOTHING, _TENANT), self.strength)

    def forget(self, gone: Callable[[Piece], bool]) -> None:
        """Forget outcomes."""
        self._begin([piece for piece in self.pieces() if not gone(piece)])

    def pieces(self) -> list[Piece]:
        """All outcomes that are remembered, oldest first but for corrected ones."""
        return [piece for _, _, piece in self._log]

    def state(self) -> tuple[list[Piece], list[float], dict[int, float]]:
        """Everything: outcomes, scores of the strengths, how far versions have moved."""
        return self.pieces(), list(self._scores.values()), dict(self._moved)

    def _add(self, piece: Piece) -> None:
        self._log.put(piece.id, piece.party, piece)
        for name in piece.path:
            node = self._nodes.get(name)
            if node is None:
                node = FairWindow[Piece](WINDOW, lambda one: one.party)
                self._nodes.put(name, piece.path[0], node)
            node.append(piece)

    def _score(self, piece: Piece) -> None:
        """How likely each strength found what has happened; where the agent has no outcome all say the same."""
        tenant, agent = (self._at(name, piece.version, "") for name in piece.path)
        if not agent[1]:
            return
        above, value = _shrunk(tenant, _NOTHING, _TENANT), min(1.0, max(0.0, piece.value))
        for k, score in self._scores.items():
            mean = min(1.0 - _EPSILON, max(_EPSILON, _shrunk(agent, above, k)))
            self._scores[k] = _KEPT * score + value * log(mean) + (1.0 - value) * log(1.0 - mean)

    def _at(self, name: str, version: int, without: str) -> tuple[float, float]:
        """Weighted outcomes and weights of a tenant or an agent, as far as the party rule lets them count."""
        pieces = [piece for piece in reversed(list(self._nodes.get(name) or ())) if piece.id != without]
        taken = [pieces[place] for place in thinned([piece.party for piece in pieces])]
        sums: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        now = self._moved.get(version)
        weight = 1.0
        for piece in taken:
            then = self._moved.get(piece.version)
            apart = 0.0 if now is None or then is None else abs(now - then)
            own = weight * 2.0 ** (-apart / HALF)
            total, weights = sums[piece.party]
            sums[piece.party] = (total + own * piece.value, weights + own)
            weight *= 1.0 - 1.0 / REACH

        def but(out: Collection[str]) -> tuple[float, float]:
            left = [pair for party, pair in sums.items() if party not in out]
            return sum(total for total, _ in left), sum(weights for _, weights in left)

        def mean(out: Collection[str]) -> float:
            total, weights = but(out)
            return total / weights if weights else float("nan")

        return but(set_aside([piece.party for piece in taken], mean))


def _shrunk(found: tuple[float, float], above: float, k: float) -> float:
    total, weights = found
    return (total + k * above) / (weights + k)

"""A learner without weights: the real one's protocol and its real credit, and updates that do what the scenario says.

It reads the file that the curator wrote, leaves out what is too old for its head, computes advantages with the
learner's own code, and answers with a candidate that is better, equal or worse by so many points: what has no advantage
teaches nothing. On `rollback` and `rebase` it goes back.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from actors.messages import MANIFEST, BatchItem, BatchOrder, Candidate, Directive, Lineage, decode_batch, derived_id
from learner.credit import CreditSettings, assign
from tests.simulation.policies import Policies
from tests.support.fakes import candidate

STEPS = {"better": 0.02, "equal": 0.0, "worse": -0.04, "one_agent": 0.02, "fall": 0.02}
"""What an update of eight runs with a gradient adds to the share of runs that succeed, by scenario."""
TRAIN_SECONDS, BACK_SECONDS = 20.0, 1.0
_STALENESS = 4
"""Updates that the oldest token may be behind the head; the real learner's default."""
_BATCH = 8


class SimulatedLearner:
    """Orders and directives in, candidates out."""

    def __init__(self, policies: Policies, *, step: float, versions: Path, clock: Callable[[], float]) -> None:
        self._policies, self._step, self._versions, self._clock = policies, step, versions, clock
        self._lineage = Lineage()
        self._parents: dict[int, int] = {}
        self._head = self._highest = 0
        self._answers: dict[str, Candidate] = {}
        self.trained: Counter[str] = Counter()
        """Trajectories by how often an update was made of them; the order that was only sent again is answered as
        before, and trains nothing."""
        self._written(0, -1)

    def answer(self, message: BatchOrder | Directive) -> Candidate | None:
        """What to publish, None for nothing; the same for the same record."""
        if message.id not in self._answers:
            found = self._train(message) if isinstance(message, BatchOrder) else self._go_back(message)
            if found is None:
                return None
            self._answers[message.id] = found
        return self._answers[message.id]

    def _train(self, order: BatchOrder) -> Candidate:
        data = Path(order.path).read_bytes()
        assert sha256(data).hexdigest() == order.sha256, f"{order.path} is not what was ordered"
        items = decode_batch(data)
        reasons = {item.attributed.id: reason for item in items if (reason := self._too_old(item))}
        left = [item for item in items if item.attributed.id not in reasons]
        credits = assign(left, CreditSettings())
        reasons |= credits.reasons
        taught = [item.attributed for item in left if item.attributed.id not in reasons]
        if not taught:
            kept = self._candidate(self._head, (order.id,))
            return msgspec.structs.replace(
                kept, id=derived_id("candidate", self._head, order.id), answer="skipped", no_gradient=reasons
            )
        self.trained.update(one.id for one in taught)
        version = self._next(self._head)
        self._policies.update(self._parents[version], version, self._step * min(1.0, len(taught) / _BATCH))
        return msgspec.structs.replace(
            self._written(version, self._parents[version], (order.id,)), no_gradient=reasons
        )  # fmt: skip

    def _too_old(self, item: BatchItem) -> str:
        distance = self._lineage.distance(item.attributed.trajectory.min_version, self._head)
        return "another line" if distance is None else "stale" if distance > _STALENESS else ""

    def _go_back(self, order: Directive) -> Candidate | None:
        """To where `order` says, if these weights come of what fared badly."""
        if order.kind not in ("rollback", "rebase"):
            return None
        bad, to = _number(order, "version"), _number(order, "to")
        line = self._lineage.line(self._head)
        if bad is not None and bad not in line:
            return None
        to = self._parents.get(bad if bad is not None else self._head) if to is None else to
        if to is None or to not in self._parents:
            return None
        self._head = to
        return msgspec.structs.replace(
            self._candidate(to, ()), id=derived_id("candidate", to, order.id), answer="went_back"
        )

    def _next(self, parent: int) -> int:
        self._highest += 1
        self._head = self._highest
        self._parents[self._head] = parent
        self._lineage.add(self._head, parent)
        return self._head

    def _written(self, version: int, parent: int, batches: Sequence[str] = ()) -> Candidate:
        self._parents[version] = parent
        candidate(version, self._versions / f"v{version:06d}")
        return self._candidate(version, batches)

    def _candidate(self, version: int, batches: Sequence[str]) -> Candidate:
        path = self._versions / f"v{version:06d}"
        return Candidate(
            id=derived_id("candidate", version), version=version, parent=self._parents[version], path=str(path),
            files=(), manifest=sha256((path / MANIFEST).read_bytes()).hexdigest(), batch_ids=tuple(batches),
            created=self._clock(),
        )  # fmt: skip


def _number(order: Directive, key: str) -> int | None:
    text = order.details.get(key, "")
    return int(text) if text.isdecimal() else None

"""The simulated learner speaks the real one's protocol."""

import random
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from actors.messages import Attributed, BatchItem, BatchOrder, Candidate, Directive, encode_batch
from tests.simulation.learner import SimulatedLearner
from tests.simulation.plan import Cell
from tests.simulation.policies import Policies
from tests.simulation.stage import Clock
from tests.simulation.traffic import Traffic, closed


class Bench:
    """A learner, and a traffic that gives it orders."""

    def __init__(self, path: Path) -> None:
        self.path, self.policies = path, Policies(1, np.random.default_rng(0))
        self.learner = SimulatedLearner(self.policies, step=0.02, versions=path / "versions", clock=Clock(0.0))
        self._traffic = Traffic(Cell(), self.policies, random.Random(0), name="test")
        self._orders = 0

    def run(self, version: int = 0) -> Attributed:
        return closed(self._traffic.run(0.0, version, "serving-0"))[0]

    def order(self, *items: Attributed) -> Candidate:
        self._orders += 1
        data = encode_batch([BatchItem(attributed=item) for item in items])
        path = self.path / f"{self._orders}"
        path.write_bytes(data)
        order = BatchOrder(
            id=f"order-{self._orders}", path=str(path), sha256=sha256(data).hexdigest(), size=len(data),
            trajectories=tuple(item.id for item in items),
        )  # fmt: skip
        answer = self.learner.answer(order)
        assert answer is not None
        return answer

    def eight(self, version: int = 0) -> list[Attributed]:
        """Runs of which some succeed and some fail: one alone has no advantage."""
        return [self.run(version) for _ in range(8)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_goes_back_without_a_copy_and_goes_on_from_there(bench: Bench) -> None:
    for version in (1, 2):
        assert bench.order(*bench.eight()).version == version
    back = Directive(id="back", kind="rebase", reason="", origin="", details={"version": "2", "to": "0"})
    answer = bench.learner.answer(back)
    assert answer is not None
    assert (answer.version, answer.answer, answer.batch_ids) == (0, "went_back", ())
    third = bench.order(*bench.eight())
    assert (third.version, third.parent) == (3, 0)
    assert 0.4 < bench.policies.skill[3][0] <= 0.42


def test_it_leaves_out_what_is_stale_or_of_another_line(bench: Bench) -> None:
    for version in range(1, 6):
        assert bench.order(*bench.eight(version - 1)).version == version
    before = Counter(bench.learner.dropped)
    assert bench.order(bench.run()).answer == "skipped"
    bench.learner.answer(
        Directive(id="back", kind="rollback", reason="", origin="", details={"version": "5", "to": "1"})
    )
    bench.order(bench.run(5))
    assert bench.learner.dropped - before == Counter({"stale": 1, "another line": 1})

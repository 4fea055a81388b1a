"""The simulation of the policy loop: it sees a standstill where there is one, and what it is made of is sound."""

import random
from collections import Counter
from hashlib import sha256

import msgspec
import numpy as np
import pytest

from actors.deployment.fleet import Fleet
from actors.messages import Attributed, BatchItem, BatchOrder, Directive, Serving, encode_batch, floats_array, ids_array
from tests.benchmarks.standstill.cell import simulate
from tests.benchmarks.standstill.learner import SimulatedLearner
from tests.benchmarks.standstill.meter import Meter, Ran
from tests.benchmarks.standstill.plan import Cell, cells
from tests.benchmarks.standstill.world import Agents, Clock, Policies

CELL = Cell(scenario="better", rate=10.0, feedback=1.0, late=0.0, least=0)


@pytest.fixture(scope="module")
def ran() -> Ran:
    return simulate(CELL, 1)


@pytest.fixture
def policies() -> Policies:
    return Policies(0.4, np.random.default_rng(0))


def agents(policies: Policies, feedback: float = 1.0) -> Agents:
    return Agents(policies, random.Random(0), name="test", feedback=feedback, idle=900.0)


def run(agents: Agents, version: int = 0) -> Attributed:
    return agents.act(0.0, version, late_share=0.0, delay=600.0).attributed


def order(path, *items: Attributed) -> BatchOrder:
    data = encode_batch([BatchItem(attributed=item) for item in items])
    path.write_bytes(data)
    names = tuple(item.id for item in items)
    return BatchOrder(
        id=f"order-{path.name}", path=str(path), sha256=sha256(data).hexdigest(), size=len(data), trajectories=names
    )


def test_learning_from_production_alone_goes_on(ran):
    assert not ran.stuck
    assert ran.counts["settled"] == 3
    assert ran.skill > 0.4


def test_what_became_of_each_report_adds_up(ran):
    assert sum(ran.fates.values()) == ran.reported <= ran.runs


def test_one_seed_gives_one_result(ran):
    again = simulate(CELL, 1)
    assert msgspec.structs.replace(again, wall=0.0) == msgspec.structs.replace(ran, wall=0.0)


def test_there_are_seventy_two_cells_with_names_of_their_own():
    assert len({cell.name for cell in cells()}) == 72


def test_recorded_runs_weighted_by_the_ratio_of_likelihoods_give_the_success_of_the_other_version(policies):
    policies.update(0, 1, 0.1)
    some = agents(policies)
    weights, outcomes = [], []
    for _ in range(4000):
        trajectory = run(some).trajectory
        (row,) = trajectory.rows
        recorded = floats_array(row.logprobs)
        sampled = recorded != 0.0
        weights.append(np.exp((policies.log_probs(ids_array(row.ids), 1) - recorded)[sampled].sum()))
        outcomes.append(trajectory.outcome)
    assert np.mean(weights) == pytest.approx(1.0, abs=0.02)
    assert np.average(outcomes, weights=weights) == pytest.approx(0.5, abs=0.03)


def test_the_learner_goes_back_without_a_copy_and_goes_on_from_there(tmp_path, policies):
    learner = SimulatedLearner(policies, step=0.02, versions=tmp_path / "versions", clock=Clock(0.0))
    some = agents(policies)
    for version in (1, 2):
        assert learner.answer(order(tmp_path / f"{version}", run(some))).version == version
    back = Directive(id="back", kind="rebase", reason="", origin="", details={"version": "2", "to": "0"})
    answer = learner.answer(back)
    assert (answer.version, answer.answer, answer.batch_ids) == (0, "went_back", ())
    third = learner.answer(order(tmp_path / "3", run(some)))
    assert (third.version, third.parent) == (3, 0)
    assert policies.skill[3] == pytest.approx(0.42)


def test_the_learner_leaves_out_what_is_stale_or_of_another_line(tmp_path, policies):
    learner = SimulatedLearner(policies, step=0.02, versions=tmp_path / "versions", clock=Clock(0.0))
    some = agents(policies)
    for version in range(1, 6):
        learner.answer(order(tmp_path / f"{version}", run(some, version - 1)))
    assert learner.answer(order(tmp_path / "late", run(some))).answer == "skipped"
    learner.answer(Directive(id="back", kind="rollback", reason="", origin="", details={"version": "5", "to": "1"}))
    learner.answer(order(tmp_path / "other", run(some, 1), run(some, 5)))
    assert learner.dropped == Counter({"stale": 1, "another line": 1})


def test_a_cell_is_stuck_when_nothing_happens_for_three_bounds():
    meter = Meter(CELL, Clock(0.0), Fleet)
    for _ in range(round(3 * CELL.bound)):
        meter.began()
    assert not meter.result(trained=set(), refused=Counter(), skill=0.4, wall=0.0).stuck
    meter.began()
    assert meter.result(trained=set(), refused=Counter(), skill=0.4, wall=0.0).stuck


def test_a_promotion_that_is_rolled_back_did_not_stick():
    meter = Meter(CELL, Clock(0.0), Fleet)
    swap = Serving(id="s", engine="serving", version=4, previous=0, path="", result="swapped", since=1.0)
    meter.seen(swap)
    meter.seen(swap)
    for number in range(40):
        meter.reported(f"run-{number}")
    assert (meter.counts["promotion"], meter.settled) == (1, 1)
    meter.seen(Directive(id="r", kind="rollback", reason="", origin="", details={"version": "4"}))
    assert meter.settled == 0

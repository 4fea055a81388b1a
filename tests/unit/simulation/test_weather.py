"""The simulation of production is sound: what it is made of, that a seed replays, and that it sees what is planted."""

import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest

from actors.messages import floats_array, ids_array
from tests.simulation import weather, words
from tests.simulation.plan import DESIGN, FACTORS, Cell, design, possible
from tests.simulation.planted import BUGS, play
from tests.simulation.policies import Policies
from tests.simulation.reporters import Reporters
from tests.simulation.traffic import Traffic, arrivals, closed
from tests.simulation.weather import shown
from tests.simulation.world import Ran, simulate

SMALL = Cell(scenario="better", rate=10.0, feedback=1.0, agents=2, engines=3, faults=True, most=90)


@pytest.fixture(scope="module")
def ran() -> Ran:
    return simulate(SMALL, 1)


def test_the_design_has_every_possible_pair_of_levels() -> None:
    cells = design()
    assert len({cell.name for cell in cells}) == DESIGN
    for one in FACTORS:
        for other in FACTORS:
            if one < other:
                found = {(getattr(cell, one), getattr(cell, other)) for cell in cells}
                wanted = {(x, y) for x in FACTORS[one] for y in FACTORS[other] if possible({one: x, other: y})}
                assert wanted <= found, (one, other)


def test_faults_break_no_promise(ran: Ran) -> None:
    assert ran.broken == ()
    assert ran.counts["promotion"] > 0
    assert sum(ran.faults.values()) > 10
    assert ran.faults.keys() >= {"disk_full", "commit_failed", "all_died"}
    assert shown([ran])["broken"] == 0


def test_a_seed_replays_event_for_event_in_another_process(ran: Ran) -> None:
    code = (
        "import msgspec; from tests.simulation.plan import Cell; from tests.simulation.world import simulate;"
        f"print(simulate(msgspec.json.decode({msgspec.json.encode(SMALL)!r}, type=Cell), 1).digest)"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == ran.digest


@pytest.mark.parametrize("bug", ["an engine is not resumed", "an outcome counted twice"])
def test_a_planted_bug_breaks_its_promise(bug: str) -> None:
    promise, planted = BUGS[bug]
    found = play(SMALL, 2, planted)
    assert [one.promise for one in found.broken][:1] == [promise]


@pytest.mark.parametrize("kind", ["steady", "bursts", "days"])
def test_arrivals_come_at_the_rate_that_is_asked_for(kind: str) -> None:
    cell = Cell(arrivals=kind, rate=10.0)
    times = list(islice(arrivals(cell, random.Random(0), 0.0), 30_000))
    assert times == sorted(times)
    assert len(times) / (times[-1] / 60.0) == pytest.approx(10.0, rel=0.1)


def test_failures_are_reported_as_often_as_the_cell_says() -> None:
    cell = Cell(feedback=0.2, skew=3.0, agents=2, liar="opposite")
    traffic = Traffic(cell, Policies(2, np.random.default_rng(0)), random.Random(0), name="test")
    runs = [traffic.run(float(number), 0, "serving-0") for number in range(6000)]
    honest = [run for run in runs if not run.agent.lies]
    told = Counter(run.success for run in honest if run.reports)
    all_of = Counter(run.success for run in honest)
    assert sum(told.values()) / len(honest) == pytest.approx(0.2, abs=0.02)
    assert (told[False] / all_of[False]) / (told[True] / all_of[True]) == pytest.approx(3.0, rel=0.2)
    lies = [run for run in runs if run.agent.lies]
    assert len(lies) / len(runs) == pytest.approx(0.2, abs=0.02)
    assert all(run.reports[0][1] == float(not run.success) for run in lies)


def test_recorded_runs_weighted_by_the_ratio_of_likelihoods_give_the_success_of_the_other_version() -> None:
    policies = Policies(3, np.random.default_rng(0))
    policies.update(0, 1, 0.1)
    traffic = Traffic(Cell(agents=3), policies, random.Random(0), name="test")
    weights, outcomes = [], []
    for number in range(4000):
        run = traffic.run(float(number), 0, "serving-0")
        row = closed(run)[0].trajectory.rows[0]
        recorded = floats_array(row.logprobs)
        weights.append(np.exp((policies.log_probs(ids_array(row.ids), 1) - recorded)[recorded != 0.0].sum()))
        outcomes.append(run.success)
    assert np.mean(weights) == pytest.approx(1.0, abs=0.02)
    assert np.average(outcomes, weights=weights) == pytest.approx(0.5, abs=0.03)


def test_requests_in_free_words_are_seldom_the_same() -> None:
    rng = random.Random(0)
    assert len({words.request(rng) for _ in range(2000)}) > 1800


def test_the_requests_of_bfcl_are_always_there() -> None:
    assert len(words.bfcl()) == 200
    rng = random.Random(0)
    assert all(words.goal("bfcl", rng, number) in words.bfcl() for number in range(20))


def told(cell: Cell, version: int, agent: int, runs: int = 4000) -> float:
    reporters = Reporters(cell, 0.4, random.Random(0))
    return sum(bool(reporters.tell(0.0, agent, version, success=number % 5 < 2)) for number in range(runs)) / runs


def test_some_agents_report_ten_times_as_often_and_a_new_version_changes_who() -> None:
    uneven, moving = (Cell(feedback=0.1, agents=5, reporters=kind) for kind in ("uneven", "moving"))
    assert told(uneven, 1, 0) / told(uneven, 1, 1) == pytest.approx(10.0, rel=0.35)
    assert told(moving, 0, 0) > 5 * told(moving, 0, 1)
    assert told(moving, 1, 1) > 5 * told(moving, 1, 0)
    assert np.mean([told(uneven, 0, agent) for agent in range(5)]) == pytest.approx(0.1, abs=0.01)
    alone = Cell(feedback=0.1, agents=1, reporters="moving")
    assert told(alone, 0, 0) > 5 * told(alone, 1, 0)


def test_delays_differ_by_agent() -> None:
    reporters = Reporters(Cell(feedback=1.0, agents=3, reporters="uneven", delay=1000.0), 0.4, random.Random(0))
    late = [
        np.mean([when for _ in range(4000) for when, _ in reporters.tell(0.0, agent, 0, success=True)[:1]])
        for agent in (0, 2)
    ]
    assert late[1] > 4 * late[0]


@pytest.mark.parametrize(
    ("liar", "version", "success", "said"),
    [
        ("opposite", 1, True, [0.0]),
        ("success", 1, False, [1.0]),
        ("failure", 1, True, [0.0]),
        ("version", 0, False, [1.0]),
        ("version", 2, True, [0.0]),
        ("swap", 0, True, []),
        ("swap", 1, True, [0.0]),
        ("flood", 1, True, [0.0, 0.0, 1.0, 1.0]),
    ],
)
def test_each_liar_lies_in_its_way(liar: str, version: int, success: bool, said: list[float]) -> None:
    reporters = Reporters(Cell(liar=liar, agents=2), 0.4, random.Random(0))
    assert [outcome for _, outcome in reporters.lie(0.0, version, success=success)] == said


def test_who_lies_after_a_swap_is_soon_silent_again() -> None:
    reporters = Reporters(Cell(liar="swap", agents=2), 0.4, random.Random(0))
    spoke = [bool(reporters.lie(0.0, 1, success=True)) for _ in range(100)]
    assert 0 < sum(spoke) < 100
    assert not spoke[-1]


def test_cells_of_another_code_or_of_a_torn_line_are_played_again(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def simulate(cell: Cell, seed: int) -> Ran:
        played.append(cell.name)
        return ran

    monkeypatch.setattr(weather, "simulate", simulate)
    monkeypatch.setattr(weather, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    file = tmp_path / "done.jsonl"
    weather.play([SMALL], 1, 1, file)
    weather.play([SMALL], 1, 1, file)
    assert len(played) == 1
    with file.open("ab") as opened:
        opened.write(b'{"name": "torn')
    monkeypatch.setattr(weather, "sources", lambda: "another")
    weather.play([SMALL], 1, 1, file)
    weather.play([SMALL], 1, 1, file)
    assert len(played) == 2


def test_the_code_has_another_digest_when_a_source_changes(tmp_path: Path) -> None:
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors" / "one.py").write_text("A = 1")
    before = weather.sources(tmp_path)
    (tmp_path / "actors" / "one.py").write_text("A = 2")
    assert weather.sources(tmp_path) != before

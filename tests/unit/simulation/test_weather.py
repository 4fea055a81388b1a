"""The simulation of production: faults break no promise, a seed replays, and what is planted is seen."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.simulation import faults
from tests.simulation.plan import Cell
from tests.simulation.planted import BUGS, play
from tests.simulation.weather import shown
from tests.simulation.world import Ran, simulate

SMALL = Cell(scenario="better", rate=10.0, feedback=1.0, agents=2, engines=3, faults=True, most=30)
SEED = 58
"""In which the rarest faults strike."""


@pytest.fixture(scope="module")
def ran() -> Ran:
    return simulate(SMALL, SEED)


@pytest.mark.promise
def test_faults_break_no_promise(ran: Ran) -> None:
    assert ran.broken == ()
    assert ran.counts["promotion"] > 0
    assert sum(ran.faults.values()) > 10
    assert ran.faults["disk_full"] == 1
    assert min(ran.faults[rare] for rare in ("died_in_swap", "all_died", "resume_lost")) > 0
    assert shown([ran])["broken"] == 0


def test_a_seed_replays_event_for_event_in_another_process(ran: Ran) -> None:
    code = (
        "import msgspec; from tests.simulation.plan import Cell; from tests.simulation.world import simulate;"
        f"print(simulate(msgspec.json.decode({msgspec.json.encode(SMALL)!r}, type=Cell), {SEED}).digest)"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == ran.digest


@pytest.mark.promise
def test_what_is_rare_breaks_no_promise_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_UNHEARD", 0.08)
    monkeypatch.setattr(faults, "_FAILED", 0.08)
    found = simulate(SMALL, 3)
    assert found.broken == ()
    assert min(found.faults["commit_unheard"], found.faults["commit_failed"]) > 0


@pytest.mark.parametrize("bug", ["an engine is not resumed", "an outcome counted twice"])
def test_a_planted_bug_breaks_its_promise(bug: str) -> None:
    promise, planted = BUGS[bug]
    found = play(SMALL, 0, planted)
    assert [one.promise for one in found.broken][:1] == [promise]

"""The demo's story: what it takes an unanswered request for, and how long its processes may take to."""

from pathlib import Path

import pytest
from rich.console import Console

from actors.gate_statistics import wilson
from actors.playing.errors import EpisodeLost
from actors.system.supervisor import DRAIN_SECONDS
from daemon.demo import scenario
from daemon.demo.measure import Success
from daemon.demo.processes import Child
from daemon.demo.scenario import Options, Scenario
from daemon.demo.view import View
from daemon.errors import StartFailed

TASKS = 192


def success(rate: float, tasks: int = TASKS) -> Success:
    solved = round(rate * tasks)
    return Success(solved / tasks, *wilson(solved, tasks), tasks)


def status(version: int, trained: int = 0) -> dict:
    return {
        "serving": {"version": version, "since": 0.0} if version else None,
        "trained": trained,
        "counts": {},
        "success": {"rate": None, "n": 0},
        "shares": {"production": 0.0, "sandbox": 0.0},
    }


def verdicts(*promoted: int) -> dict:
    return {"points": [], "swaps": [], "gate": [{"version": one, "decision": "promote"} for one in promoted]}


class FakeWorld:
    """A daemon that answers what the test says, the last answer for ever; None is no answer."""

    def __init__(self, statuses, successes) -> None:
        self.answers = {"/api/status": iter(statuses), "/api/success": iter(successes)}
        self.last = {}
        self.orders = []
        self.deaf = 0
        self.daemon = self
        self.log_path = Path("daemon.log")
        self.drift = Path("/dev/null")

    def check(self) -> None:
        pass

    def get(self, path):
        self.last[path] = next(self.answers[path], self.last.get(path))
        return self.last[path]

    def post(self, path, body):
        self.orders.append(path)
        self.deaf -= 1
        return self.deaf < 0


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(scenario, "time", clock)
    return clock


@pytest.fixture
def story(tmp_path, clock, monkeypatch):
    def make(statuses, successes=(verdicts(),), measured=(), **options):
        view = View(Console(quiet=True), "")
        made = Scenario(Options(directory=tmp_path / "demo", **options), view)
        made.world = FakeWorld(statuses, successes)
        made.said = []
        monkeypatch.setattr(view, "stage", made.said.append)
        rates = iter(measured)

        def sampled() -> Success:
            clock.sleep(10)
            rate = next(rates)
            if rate is None:
                raise ExceptionGroup("", [EpisodeLost("engine_unavailable", "gone")])
            return success(rate)

        monkeypatch.setattr(made, "_sampled", sampled)
        return made

    return make


@pytest.mark.parametrize(
    "answers",
    [
        [status(6), status(6), None, None, status(6), None, status(9)],
        [None, *[status(6)] * 5, status(9)],  # silent right after the rename
    ],
)
def test_a_status_request_without_an_answer_says_nothing_of_what_serves(story, monkeypatch, answers):
    told = story(answers, measured=[0.95, 0.33, 0.90, 0.90], drift=True)
    monkeypatch.setattr(told, "_learn", lambda: {})
    figures = told._drift()
    assert [line for line in told.said if "serves" in line] == ["v9 serves: held-out success 90 %"]
    assert figures["drift_seconds"] > 0


def test_the_last_swap_waits_for_an_answer_on_what_was_promoted(story, clock):
    told = story([status(0, 3)] * 6 + [status(3, 3)], [verdicts(3)] * 2 + [None] * 4 + [verdicts(3)])
    told._last_swap()
    assert told.world.last["/api/status"] == status(3, 3)
    assert told.world.orders == ["/api/freeze"]


def test_the_newest_candidate_is_asked_for_until_it_is_known(story):
    told = story([None, *[status(3, 6)] * 20, status(6, 6)], [verdicts(3)] * 12 + [verdicts(3, 6)])
    told._last_swap()
    assert told.world.last["/api/success"] == verdicts(3, 6)


def test_an_order_that_was_not_heard_is_given_again_for_a_while(story, clock):
    told = story([status(0)])
    told.world.deaf = 3
    told._order("thaw", "because")
    assert told.world.orders == ["/api/thaw"] * 4
    told.world.deaf = 1000
    with pytest.raises(StartFailed, match="/api/thaw"):
        told._order("thaw", "because")
    assert clock.now < 100


def test_children_may_take_longer_to_end_than_the_daemon_drains(story, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(Child, "stop", lambda self, deadline=10.0: given.append(deadline))
    Scenario(Options(directory=tmp_path / "other"), View(Console(quiet=True), "")).world.stop()
    assert min(given) >= DRAIN_SECONDS + 5

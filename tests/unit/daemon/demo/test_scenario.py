"""The demo's story: what it takes an unanswered request for, when it ends, and how long its processes may take to."""

import itertools
from pathlib import Path

import pytest
from rich.console import Console

from actors.rollout.errors import EpisodeLost
from actors.statistics.intervals import wilson
from actors.system.supervisor import DRAIN_SECONDS
from daemon.demo import scenario
from daemon.demo.measure import Success
from daemon.demo.processes import Child
from daemon.demo.scenario import Look, Options, Scenario, level
from daemon.demo.view import View
from daemon.errors import StartFailed

TASKS = 192
LEVEL = "success is level; learning stops"


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

    def __init__(self, statuses, successes, drift: Path) -> None:
        self.answers = {"/api/status": iter(statuses), "/api/success": iter(successes)}
        self.last = {}
        self.orders = []
        self.deaf = 0
        self.daemon = self
        self.log_path = Path("daemon.log")
        self.drift = drift

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
        made.world = FakeWorld(statuses, successes, tmp_path / "drift.json")
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


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((0.94, 0.95, 0.96), True),
        ((0.60, 0.94, 0.95, 0.95), True),
        ((0.95, 0.95), False),
        ((0.44, 0.50, 0.56), False),  # a rise that chance could explain
        ((0.75, 0.75, 0.75), False),  # so few tasks cannot tell
        ((0.88, 0.92, 0.96), False),
        ((0.96, 0.92, 0.88), False),
        ((0.95, 0.95, 0.96, 0.88), False),
    ],
)
def test_level_is_where_three_intervals_leave_no_room_to_move(rates, expected):
    assert level([Look(number, success(rate)) for number, rate in enumerate(rates)]) is expected


def test_fewer_tasks_need_more_to_be_called_level():
    assert not level([Look(number, success(0.95, 64)) for number in range(3)])
    assert level([Look(number, success(1.0, 64)) for number in range(3)])


def test_three_looks_at_one_version_are_not_level():
    assert not level([Look(9, success(0.95))] * 3)
    assert level([*[Look(9, success(0.95))] * 2, Look(12, success(0.95))])


def learning(swap_at: int):
    """Every look at the status an update; from `swap_at` on what was learned serves."""
    return (status(n - n % 3 if n >= swap_at else 0, n) for n in itertools.count())


def test_learning_stops_when_success_is_level_over_three_looks_after_the_first_swap(story):
    told = story(learning(6), [verdicts(99)], [0.80, 0.93, 0.95, 0.95])
    told._learn()
    looks = [line for line in told.said if "serves" in line]
    assert [line.split()[0] for line in looks] == ["v6", "v9", "v12", "v18"]
    assert LEVEL in told.said
    assert told.world.orders == ["/api/freeze"]


def test_a_run_without_a_swap_is_never_level(story):
    told = story(learning(1000), [verdicts(99)], [])
    told._learn()
    assert not [line for line in told.said if "serves" in line or line == LEVEL]


def test_updates_that_were_asked_for_are_made_however_level_it_is(story):
    told = story(learning(3), [verdicts(99)], [], updates=24)
    told._learn()
    assert told.world.last["/api/status"]["trained"] >= 24


def test_a_rise_goes_on_to_the_most_updates(story):
    told = story(learning(3), [verdicts(99)], [0.44, 0.50, 0.56, 0.62, 0.68, 0.74, 0.80, 0.86])
    told._learn()
    assert told.world.last["/api/status"]["trained"] >= 24
    assert LEVEL not in told.said


def test_a_look_that_breaks_off_does_not_end_the_story(story):
    told = story(learning(3), [verdicts(99)], [0.95, None, 0.95, 0.95])
    told._learn()
    assert any("could not be measured" in line for line in told.said)
    assert LEVEL in told.said


def test_children_may_take_longer_to_end_than_the_daemon_drains(story, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(Child, "stop", lambda self, deadline=10.0: given.append(deadline))
    Scenario(Options(directory=tmp_path / "other"), View(Console(quiet=True), "")).world.stop()
    assert min(given) >= DRAIN_SECONDS + 5

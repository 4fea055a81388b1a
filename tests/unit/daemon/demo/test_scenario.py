"""The demo's story: when it ends, whatever is not answered or not heard on the way."""

import itertools
from pathlib import Path

import pytest
from rich.console import Console

from actors.rollout.errors import EpisodeLost
from actors.statistics.intervals import wilson
from daemon.demo import scenario
from daemon.demo.measure import Success
from daemon.demo.scenario import Look, Options, Scenario, level
from daemon.demo.view import View
from daemon.errors import StartFailed

LEVEL = "success is level; learning stops"


def success(rate: float, tasks: int = 192) -> Success:
    solved = round(rate * tasks)
    return Success(solved / tasks, *wilson(solved, tasks), tasks)


def status(version: int, trained: int = 0) -> dict:
    shares = {"production": 0.0, "sandbox": 0.0}
    serving = {"version": version, "since": 0.0} if version else None
    told = {"counts": {}, "success": {"rate": None, "n": 0}, "shares": shares}
    return {"serving": serving, "trained": trained, **told}


def verdicts(*promoted: int) -> dict:
    return {"points": [], "swaps": [], "gate": [{"version": one, "decision": "promote"} for one in promoted]}


class FakeWorld:
    """A daemon that answers as told, the last answer for ever; None is no answer. Its clock runs by sleep."""

    def __init__(self, statuses, successes, drift: Path) -> None:
        self.answers = {"/api/status": iter(statuses), "/api/success": iter(successes)}
        self.last, self.orders, self.deaf, self.now = {}, [], 0, 0.0
        self.daemon, self.log_path, self.drift = self, Path("daemon.log"), drift

    def check(self) -> None:
        pass

    def get(self, path):
        answer = next(self.answers[path], self.last.get(path))
        self.last[path] = answer or self.last.get(path)
        return answer

    def post(self, path, body):
        self.orders.append(path)
        self.deaf -= 1
        return self.deaf < 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def story(tmp_path, monkeypatch):
    def make(statuses, successes=(verdicts(),), measured=(), **options):
        view = View(Console(quiet=True), "")
        made = Scenario(Options(directory=tmp_path / "demo", **options), view)
        made.world = FakeWorld(statuses, successes, tmp_path / "drift.json")
        monkeypatch.setattr(scenario, "time", made.world)
        made.said = []
        monkeypatch.setattr(view, "stage", made.said.append)
        rates = iter(measured)

        def sampled() -> Success:
            made.world.sleep(10)
            rate = next(rates)
            if rate is None:
                raise ExceptionGroup("", [EpisodeLost("engine_unavailable", "gone")])
            return success(rate)

        monkeypatch.setattr(made, "_sampled", sampled)
        return made

    return make


def test_after_a_drift_only_what_is_told_to_serve_is_measured(story, monkeypatch):
    told = story([None, status(6), status(6), None, status(9)], measured=[0.95, 0.33, 0.90], drift=True)
    monkeypatch.setattr(told, "_learn", lambda: {})
    figures = told._drift()
    assert [line for line in told.said if "serves" in line] == ["v9 serves: held-out success 90 %"]
    assert figures["drift_seconds"] > 0


def test_a_daemon_that_takes_no_order_ends_the_story_after_a_while(story):
    told = story([status(0)])
    told.world.deaf = 1000
    with pytest.raises(StartFailed, match="/api/thaw"):
        told._order("thaw", "because")
    assert told.world.now < 100


@pytest.mark.parametrize(
    ("looks", "tasks", "expected"),
    [
        ({0: 0.94, 1: 0.95, 2: 0.96}, 192, True),
        ({0: 0.60, 1: 0.94, 2: 0.95, 3: 0.95}, 192, True),
        ({0: 0.95, 1: 0.95}, 192, False),
        ({0: 0.44, 1: 0.50, 2: 0.56}, 192, False),  # a rise that chance could explain
        ({0: 0.75, 1: 0.75, 2: 0.75}, 192, False),  # so few tasks cannot tell
        ({0: 0.88, 1: 0.92, 2: 0.96}, 192, False),
        ({0: 0.96, 1: 0.92, 2: 0.88}, 192, False),
        ({0: 0.95, 1: 0.95, 2: 0.96, 3: 0.88}, 192, False),
        ({0: 0.95, 1: 0.95, 2: 0.95}, 64, False),  # fewer tasks need more
        ({0: 1.0, 1: 1.0, 2: 1.0}, 64, True),
    ],
)
def test_level_is_where_three_intervals_leave_no_room_to_move(looks, tasks, expected):
    seen = [Look(version, success(rate, tasks)) for version, rate in looks.items()]
    assert level(seen) is expected
    assert not level([seen[-1]] * 3), "of one version"


@pytest.mark.parametrize(
    ("swap_at", "measured", "options", "versions", "is_level"),
    [
        pytest.param(6, [0.80, 0.93, 0.95, 0.95], {}, ["v6", "v9", "v12", "v18"], True, id="level over three looks"),
        pytest.param(1000, [], {}, [], False, id="a run without a swap is never level"),
        pytest.param(3, [], {"updates": 24}, [], False, id="updates that were asked for are made"),
        pytest.param(3, [0.44, 0.50, 0.56, 0.62, 0.68, 0.74, 0.80, 0.86], {}, None, False, id="a rise goes on"),
        pytest.param(3, [0.95, None, 0.95, 0.95], {}, None, True, id="a look that breaks off ends no story"),
    ],
)
def test_learning_stops_when_success_is_level_or_the_updates_are_made(
    story, swap_at, measured, options, versions, is_level
):
    # Every other look at the status an update, or no answer; from `swap_at` on what was learned serves. The newest
    # candidate is v24, and an order is heard the third time.
    made = (status(n - n % 3 if n >= swap_at else 0, n) for n in itertools.count())
    learning = (answer for each in made for answer in (each, None))
    told = story(learning, [None, verdicts(3), None, verdicts(99)], measured, **options)
    told.world.deaf = 2
    told._learn()
    looks = [line.split()[0] for line in told.said if "serves" in line]
    assert versions is None or looks == versions
    assert (LEVEL in told.said) is is_level
    assert is_level or told.world.last["/api/status"]["trained"] >= 24
    assert told.world.orders == ["/api/freeze"] * 3
    assert any("could not be measured" in line for line in told.said) is (None in measured)

"""Errors, slowness and standstills of engines, before and after a swap."""

import msgspec
import pytest

from actors.messages import Exchange, VersionSpan
from actors.monitoring.engine import EngineWatch
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding
from actors.monitoring.settings import EngineSettings
from actors.ports.engine_figures import Figures, read_figures
from actors.ports.errors import EngineRejected

SETTINGS = EngineSettings()
BOUNDS = (0.1, 0.2, 0.4, 0.8, float("inf"))


def call(number: int, *, seconds: float = 1.0, status: int = 200, version: int | None = None) -> Exchange:
    spans = () if version is None else (VersionSpan(version, 0, 1),)
    return Exchange(
        id=f"x{number}", endpoint="chat", engine="serving", started=float(number), duration=seconds, status=status,
        request=b"", response=b"", versions=spans,
    )  # fmt: skip


class Bench:
    """An engine that answers ten calls every ten seconds; swapped at second 1000."""

    def __init__(self, settings: EngineSettings = SETTINGS) -> None:
        self.watch, self.history = EngineWatch(settings), History(8, 8, 2)
        self.now, self.figures = 0.0, Figures(first_token=dict.fromkeys(BOUNDS, 0.0))

    def swap(self, version: int = 1) -> None:
        swap = Swap("serving", version, version - 1, self.now)
        self.history.swapped(swap)
        self.watch.swapped(swap)

    def tick(
        self, *, answers: int = 10, within: float = 0.1, waiting: int = 0, running: int = 1, paused: bool = False
    ) -> list[Finding]:
        """Ten seconds in which so many first tokens came within a bound."""
        self.now += 10.0
        old = self.figures
        self.figures = Figures(
            running=running, waiting=waiting, tokens=old.tokens + 20 * answers, finished=old.finished + answers,
            first_token={bound: count + answers * (bound >= within) for bound, count in old.first_token.items()},
        )  # fmt: skip
        self.watch.measured("serving", self.figures, paused, self.now)
        return self.watch.look(self.history, self.now)

    def calls(self, count: int, **kind: object) -> list[Finding]:
        found: list[Finding] = []
        for at in range(count):
            self.watch.called(call(int(self.now) + at, **kind))
            found += self.watch.look(self.history, self.now)
        return found


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.swap(0)
    for _ in range(30):
        bench.tick()
    return bench


def test_failing_calls_after_a_swap_roll_back_once(bench: Bench) -> None:
    assert bench.calls(100, version=0) == []
    bench.swap()
    assert bench.calls(30, version=1) == []
    (finding,) = bench.calls(200, status=502)
    assert (finding.cause, finding.action, finding.details["to"]) == ("engine-errors", "rollback", "0")
    assert "0.0% ->" in finding.reason


def test_slower_calls_after_a_swap_are_told_once(bench: Bench) -> None:
    bench.calls(100, version=0)
    bench.swap()
    (finding,) = bench.calls(120, version=1, seconds=3.0)
    assert (finding.cause, finding.action) == ("engine-latency", "tell")


def test_slower_calls_roll_back_where_that_is_wanted() -> None:
    bench = Bench(msgspec.structs.replace(SETTINGS, slow_action="rollback"))
    bench.swap(0)
    bench.tick()
    bench.calls(100, version=0)
    bench.swap()
    (finding,) = bench.calls(120, version=1, seconds=3.0)
    assert (finding.cause, finding.action) == ("engine-latency", "rollback")


def test_the_same_service_after_a_swap_is_quiet(bench: Bench) -> None:
    bench.calls(100, version=0)
    bench.swap()
    assert bench.calls(300, version=1) == []
    assert [finding for _ in range(60) for finding in bench.tick()] == []


def test_a_call_in_flight_at_the_swap_belongs_to_neither_side(bench: Bench) -> None:
    bench.swap()
    bench.watch.called(call(int(bench.now) - 1, seconds=9.0, status=502))
    assert not msgspec.msgpack.decode(bench.watch.save())["serving"]["calls"]


def test_a_late_first_token_is_acted_on_where_wanted_but_never_under_more_load() -> None:
    for answers, wanted, action in ((10, "tell", "tell"), (10, "rollback", "rollback"), (40, "rollback", "tell")):
        one = Bench(msgspec.structs.replace(SETTINGS, slow_action=wanted))
        one.swap(0)
        for _ in range(30):
            one.tick()
        one.swap()
        found = [finding for _ in range(30) for finding in one.tick(answers=answers, within=0.4)]
        assert [(finding.cause, finding.action) for finding in found] == [("engine-first-token", action)]


def test_slow_starts_right_after_a_swap_are_left_out(bench: Bench) -> None:
    bench.swap()
    found = [finding for within in (0.8, 0.8) for finding in bench.tick(within=within)]
    assert found + [finding for _ in range(50) for finding in bench.tick()] == []


def test_a_growing_queue_is_told(bench: Bench) -> None:
    bench.swap()
    found = [finding for _ in range(10) for finding in bench.tick(waiting=9)]
    assert [(finding.cause, finding.action) for finding in found] == [("engine-queue", "tell")]


def test_an_engine_that_makes_no_token_raises_one_alarm_until_it_moves_again(bench: Bench) -> None:
    found = [finding.cause for _ in range(12) for finding in bench.tick(answers=0)]
    assert found == ["stalled"]
    bench.tick()
    assert [finding.cause for _ in range(12) for finding in bench.tick(answers=0)] == ["stalled"]


def test_an_engine_that_does_not_answer_is_not_called_stalled(bench: Bench) -> None:
    bench.tick()
    bench.tick(answers=0)
    bench.now += 600.0
    assert bench.watch.look(bench.history, bench.now) == []


def test_an_idle_engine_is_not_stalled(bench: Bench) -> None:
    assert [finding for _ in range(20) for finding in bench.tick(answers=0, running=0)] == []


def test_an_engine_that_stays_paused_raises_an_alarm(bench: Bench) -> None:
    found = [finding.cause for _ in range(12) for finding in bench.tick(answers=0, paused=True)]
    assert found == ["paused"]


def test_an_engine_that_was_started_anew_is_not_compared_with_its_former_life(bench: Bench) -> None:
    bench.swap()
    bench.figures = Figures(first_token=dict.fromkeys(BOUNDS, 0.0))
    assert [finding for _ in range(30) for finding in bench.tick(within=0.8)] == []


def test_the_state_survives_a_restart(bench: Bench) -> None:
    bench.calls(100, version=0)
    bench.swap()
    again = EngineWatch(SETTINGS)
    again.restore(bench.watch.save())
    bench.watch = again
    (finding,) = bench.calls(120, version=1, seconds=3.0)
    assert finding.cause == "engine-latency"


def test_figures_are_summed_over_engines_and_finish_reasons() -> None:
    text = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop"} 7.0
vllm:request_success_total{engine="0",finished_reason="error"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 2.0
"""
    figures = read_figures(text)
    assert (figures.running, figures.finished, figures.errors) == (5.0, 8.0, 1.0)
    assert figures.first_token == {0.1: 5.0, float("inf"): 8.0}
    with pytest.raises(EngineRejected):
        read_figures("vllm:num_requests_running nonsense")

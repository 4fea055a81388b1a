"""Errors, slowness and standstills of engines, before and after a swap."""

import msgspec
import pytest

from actors.messages import Exchange, VersionSpan
from actors.monitoring.engine import EngineWatch
from actors.monitoring.engine_figures import Figures, read_figures
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding
from actors.ports.errors import EngineRejected

BOUNDS = (0.1, 0.2, 0.4, 0.8, float("inf"))


class Bench:
    """An engine that answers ten calls every ten seconds, as it has for five minutes; and a hundred through the tap."""

    def __init__(self) -> None:
        self.watch, self.history = EngineWatch(), History(8, 8, 2)
        self.now, self.figures = 0.0, Figures(first_token=dict.fromkeys(BOUNDS, 0.0))
        self.swap(0)
        assert [self.tick() for _ in range(30)] == [[]] * 30
        assert self.calls(100, version=0) == []

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

    def call(self, at: float = 0.0, *, seconds: float = 1.0, status: int = 200, version: int | None = None) -> None:
        spans = () if version is None else (VersionSpan(version, 0, 1),)
        self.watch.called(
            Exchange(
                id=f"x{at}", endpoint="chat", engine="serving", started=self.now + at, duration=seconds, status=status,
                request=b"", response=b"", versions=spans,
            )
        )  # fmt: skip

    def calls(self, count: int, **kind) -> list[Finding]:
        found: list[Finding] = []
        for at in range(count):
            self.call(at, **kind)
            found += self.watch.look(self.history, self.now)
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ({"version": 1}, []),
        ({"status": 502}, [("engine-errors", "rollback")]),
        ({"version": 1, "seconds": 3.0}, [("engine-latency", "tell")]),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_happens_to_calls_since_a_swap_is_told_once(bench: Bench, kind, told, restarted) -> None:
    bench.swap()
    assert bench.calls(30, version=1) == []
    if restarted:
        again = EngineWatch()
        again.restore(bench.watch.save())
        bench.watch = again
    found = bench.calls(250, **kind)
    assert [(finding.cause, finding.action) for finding in found] == told
    for finding in found:
        assert (finding.details["version"], finding.details["to"], "->" in finding.reason) == ("1", "0", True)


def test_a_call_in_flight_at_the_swap_belongs_to_neither_side(bench: Bench) -> None:
    before = bench.watch.save()
    bench.swap()
    bench.call(-1, seconds=9.0, status=502)
    calls = [msgspec.msgpack.decode(data)["serving"]["calls"] for data in (before, bench.watch.save())]
    assert calls[0] == calls[1]


@pytest.mark.parametrize(
    ("ticks", "told"),
    [
        ([{}] * 60, []),
        ([{"within": 0.4}] * 30, [("engine-first-token", "tell")]),
        ([{"within": 0.8}] * 2 + [{}] * 50, []),
        ([{"waiting": 9}] * 10, [("engine-queue", "tell")]),
    ],
    ids=["as before", "late", "a slow start", "a queue"],
)
def test_what_the_engine_says_of_itself_since_a_swap_is_told_once(bench: Bench, ticks, told) -> None:
    bench.swap()
    found = [finding for tick in ticks for finding in bench.tick(**tick)]
    assert [(finding.cause, finding.action) for finding in found] == told


def test_an_engine_that_was_started_anew_is_not_compared_with_its_former_life(bench: Bench) -> None:
    bench.swap()
    bench.figures = Figures(first_token=dict.fromkeys(BOUNDS, 0.0))
    assert [finding for _ in range(30) for finding in bench.tick(within=0.8)] == []


@pytest.mark.parametrize(
    ("tick", "told"),
    [({"answers": 0}, ["stalled"]), ({"answers": 0, "running": 0}, []), ({"answers": 0, "paused": True}, ["paused"])],
    ids=["makes no token", "idle", "paused"],
)
def test_an_engine_that_stands_still_raises_one_alarm_until_it_moves_again(bench: Bench, tick, told) -> None:
    for _ in range(2):
        found = [finding for _ in range(12) for finding in bench.tick(**tick)]
        assert [(finding.cause, finding.action) for finding in found] == [(cause, "tell") for cause in told]
        bench.tick()


def test_an_engine_that_does_not_answer_is_not_called_stalled(bench: Bench) -> None:
    bench.tick(answers=0)
    assert bench.watch.look(bench.history, bench.now + 600.0) == []


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

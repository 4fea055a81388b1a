"""What the daemon writes about the engines is what the tap's router does, until it gets stale."""

import random
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.messages.routes import Routes, write_routes
from daemon.tap.router import Router
from daemon.tap.routing import Routing
from tests.support.fakes import Clock
from tests.unit.daemon.tap.test_router import asked, engine


class Bench:
    def __init__(self, directory: Path, *weights: float) -> None:
        self.path, self.clock = directory / "routes.json", Clock()
        upstreams = [engine(f"e{n}", weight) for n, weight in enumerate(weights)]
        self.router = Router(upstreams, rng=random.Random(1))
        self.routing = Routing(self.path, self.router, clock=self.clock)
        self.rounds = 0

    def tell(self, *, canary: str = "", share: float = 0.0, closed: tuple[str, ...] = ()) -> None:
        write_routes(self.path, Routes(until=self.clock.now + 30, canary=canary, share=share, closed=closed))
        self.routing.look()

    def shares(self, count: int = 2000) -> list[float]:
        self.rounds += 1
        before = [one.trajectories for one in self.router.upstreams]
        for n in range(count):
            self.router.choose(asked(x_evolved_trajectory=f"{self.rounds}-{n}"))
        return [(one.trajectories - b) / count for one, b in zip(self.router.upstreams, before, strict=True)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, 1.0, 3.0, 1.0)


def test_without_a_file_it_goes_by_weight(bench: Bench) -> None:
    bench.routing.look()
    assert bench.shares() == [0.2, 0.6, 0.2]


def test_the_canary_gets_its_share_and_the_others_the_rest_by_weight(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.1)
    first, second, canary = bench.shares()
    assert abs(canary - 0.1) < 3 * (0.1 * 0.9 / 2000) ** 0.5
    assert second == pytest.approx(3 * first, rel=0.01)


def test_who_is_the_canarys_is_chance_and_no_rhythm(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.25)
    names = [bench.router.choose(asked(x_evolved_trajectory=str(n))).name == "e2" for n in range(4000)]
    by_phase = [sum(names[phase::4]) / 1000 for phase in range(4)]
    assert all(abs(share - 0.25) < 4 * (0.25 * 0.75 / 1000) ** 0.5 for share in by_phase)


def test_a_closed_engine_gets_nothing_new_and_keeps_what_it_has(bench: Bench) -> None:
    old = {name: bench.router.choose(asked(x_evolved_trajectory=name)).name for name in "abcdef"}
    bench.tell(closed=("e1",))
    assert bench.shares()[1] == 0.0
    assert {name: bench.router.choose(asked(x_evolved_trajectory=name)).name for name in "abcdef"} == old


def test_if_all_are_closed_all_are_open(bench: Bench) -> None:
    bench.tell(closed=("e0", "e1", "e2"))
    assert min(bench.shares()) > 0


def test_a_canary_that_is_sick_costs_nobody_an_answer_and_one_that_is_left_alone_takes_all(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5)
    bench.router.upstreams[2].healthy = False
    assert bench.shares()[2] == 0.0
    bench.router.upstreams[2].healthy = True
    bench.router.upstreams[0].healthy = bench.router.upstreams[1].healthy = False
    assert bench.shares() == [0.0, 0.0, 1.0]


def test_what_nobody_renews_is_no_longer_believed(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5, closed=("e0",))
    bench.clock.now += 31
    bench.routing.look()
    first, _, canary = bench.shares()
    assert (canary, first > 0) == (0.0, True), "nobody watches the canary, and nobody opens what was closed"
    bench.tell(canary="e2", share=0.5)
    assert bench.shares()[2] > 0.4


def test_a_file_that_cannot_be_read_changes_nothing_is_logged_once_and_counted(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5)
    bench.path.write_text("{")
    with capture_logs() as logs:
        for _ in range(3):
            bench.routing.look()
    assert [entry["event"] for entry in logs] == ["routes_unusable"]
    assert (bench.routing.errors, bench.router.share) == (1, 0.5)


def test_an_engine_that_the_tap_does_not_know_is_told_with_the_remedy(bench: Bench) -> None:
    with capture_logs() as logs:
        bench.tell(canary="elsewhere", share=0.5)
    assert "tap.upstreams" in logs[0]["reason"]
    assert bench.router.canary is None


def test_an_unchanged_file_is_not_read_again(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5)
    bench.routing.look()
    assert bench.routing.reads == 1

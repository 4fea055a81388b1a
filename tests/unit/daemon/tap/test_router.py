"""New runs go by weight, and as the daemon writes until that gets stale; the calls of one run stay with one engine.

By the opening of a conversation, and whichever tap takes the call: `tests/chaos/test_taps.py`.
"""

import random
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.messages.routes import Routes, write_routes
from daemon.tap.route_table import RouteTable
from daemon.tap.router import Router
from daemon.tap.settings import Address
from daemon.tap.upstream import Upstream
from tests.support.fakes import Clock
from tests.unit.daemon.tap.made import request


def router(*weights: float, table: Path | None = None, clock: Clock | None = None) -> Router:
    clock = clock or Clock()
    upstreams = [
        Upstream(f"e{n}", Address("e", 1), weight=weight, tls=None, clock=clock) for n, weight in enumerate(weights)
    ]
    return Router(upstreams, table=table, rng=random.Random(1), clock=clock)


def run(router: Router, name: object) -> str:
    """Where the calls of the run `name` go."""
    return router.choose(request(x_evolved_trajectory=str(name))).name


# -- one run, one engine -----------------------------------------------------------------------------------------------


def test_new_runs_spread_by_weight_and_weight_zero_takes_none() -> None:
    three = router(3.0, 1.0, 0.0)
    found = Counter(three.choose(request()).name for _ in range(4000))
    assert set(found) == {"e0", "e1"}
    assert abs(found["e1"] - 1000) < 3 * (4000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("answer", "next_call"),
    [
        (
            b'{"id":"chatcmpl-9","choices":[{"message":{"tool_calls":[{"id":"call_x7Qk1"}]}}]}',
            b'{"messages":[{"role":"tool","tool_call_id":"call_x7Qk1","content":"3"}]}',
        ),
        (b'{"id":"resp_1"}', b'{"previous_response_id": "resp_1"}'),
        (
            b'{"id":"msg_1","content":[{"type":"tool_use","id":"toolu_x7Qk1"}]}',
            b'{"messages":[{"type":"tool_result","tool_use_id":"toolu_x7Qk1","content":"%b"}],"m":{"user_id":"u"},"t":"%b"}'
            % (b"x" * (1 << 20), b"y" * (512 << 10)),
        ),
    ],
    ids=["a tool's result", "a previous response", "a long result, and ids that are none before what is longer"],
)
def test_what_follows_an_answer_goes_where_that_was_made(answer: bytes, next_call: bytes, at: int) -> None:
    two = router(1.0, 1.0)
    two.learn(answer, two.upstreams[at])
    assert {two.choose(request(next_call)) for _ in range(3)} == {two.upstreams[at]}


def test_ids_that_engines_repeat_move_no_conversation() -> None:
    three = router(1.0, 1.0, 1.0)
    found: dict[int, set[str]] = {number: set() for number in range(30)}
    for call in range(4):
        for number, engines in found.items():
            said = (
                b'{"role":"assistant","tool_calls":[{"id":"call_0"}]},{"role":"tool","tool_call_id":"call_0"},' * call
            )
            body = b'{"messages":[{"role":"user","content":"wish %d"},%b{}]}' % (number, said)
            chosen = three.choose(request(body))
            engines.add(chosen.name)
            three.learn(b'{"id":"chatcmpl-%d-%d","choices":[{"id":"call_0"}]}' % (number, call), chosen)
    assert {len(engines) for engines in found.values()} == {1}
    assert len(set[str]().union(*found.values())) == 3


def test_a_sick_engine_gets_nothing_and_its_runs_move_for_good_unless_all_are_sick() -> None:
    two = router(1.0, 1.0)
    first = two.choose(request(x_evolved_trajectory="t"))
    first.healthy = False
    other = run(two, "t")
    assert other != first.name
    first.healthy = True
    assert run(two, "t") == other
    for one in two.upstreams:
        one.healthy = False
    assert run(two, "new") in ("e0", "e1"), "one is tried all the same"


def test_taps_that_share_a_table_know_of_each_other_and_one_that_starts_knows_too(tmp_path: Path) -> None:
    table = tmp_path / "routes"
    one, other = router(1.0, 1.0, table=table), router(1.0, 1.0, table=table)
    at = {number: run(one, number) for number in range(1000)}
    assert set(at.values()) == {"e0", "e1"}
    assert {number: run(other, number) for number in at} == at
    other.learn(b'{"id":"resp_1"}', other.upstreams[0])
    started = router(1.0, 1.0, 1.0, table=table)
    assert started.choose(request(b'{"previous_response_id": "resp_1"}')).name == "e0"
    assert {number: run(started, number) for number in at} == at, "engines are known by name, not by place"


def test_of_more_than_a_table_holds_the_newest_are_remembered() -> None:
    table = RouteTable(["e"])
    keys = [str(number).encode() for number in range(600_000)]
    for key in keys:
        table.put(key, "e")
    # 262,144 slots, in sets of eight: hardly one is asked for more than eight of the newest.
    known = [table.get(key) is not None for key in keys]
    assert sum(known) > 250_000
    assert sum(known[-100_000:]) > 99_500
    assert sum(known[:200_000]) < 20_000


def test_what_cannot_be_shared_is_remembered_alone_and_said(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "none" / "routes", tmp_path / "link"):
        with capture_logs() as logs:
            alone = router(1.0, 1.0, table=path)
        assert [(one["event"], one["path"]) for one in logs] == [("routes_not_shared", str(path))]
        assert run(alone, "t") == run(alone, "t")
    assert not (tmp_path / "elsewhere").exists()


# -- what the daemon says ----------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, directory: Path) -> None:
        self.path, self.clock, self.rounds = directory / "routes.json", Clock(), 0
        self.router = router(1.0, 3.0, 1.0, clock=self.clock)

    def tell(self, *, canary: str = "", share: float = 0.0, closed: tuple[str, ...] = ()) -> None:
        write_routes(self.path, Routes(until=self.clock.now + 30, canary=canary, share=share, closed=closed))
        self.router.look(self.path)

    def shares(self, count: int = 2000) -> list[float]:
        self.rounds += 1
        found = Counter(run(self.router, f"{self.rounds}-{n}") for n in range(count))
        return [found[f"e{n}"] / count for n in range(3)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.router.look(bench.path)
    assert bench.shares() == pytest.approx([0.2, 0.6, 0.2], abs=0.04), "by weight, without a file"
    return bench


def test_the_canary_gets_its_share_by_chance_and_no_rhythm_and_the_others_the_rest_by_weight(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.1)
    first, second, canary = bench.shares()
    assert abs(canary - 0.1) < 3 * (0.1 * 0.9 / 2000) ** 0.5
    assert second / first == pytest.approx(3, abs=0.5)
    bench.tell(canary="e2", share=0.25)
    names = [run(bench.router, n) == "e2" for n in range(4000)]
    by_phase = [sum(names[phase::4]) / 1000 for phase in range(4)]
    assert all(abs(share - 0.25) < 4 * (0.25 * 0.75 / 1000) ** 0.5 for share in by_phase)


def test_a_closed_engine_gets_nothing_new_and_keeps_what_it_has_unless_all_are(bench: Bench) -> None:
    old = {name: run(bench.router, name) for name in "abcdef"}
    bench.tell(closed=("e1",))
    assert bench.shares()[1] == 0.0
    assert {name: run(bench.router, name) for name in "abcdef"} == old
    bench.tell(closed=("e0", "e1", "e2"))
    assert min(bench.shares()) > 0


def test_a_canary_that_is_sick_costs_nobody_an_answer_and_one_that_is_left_alone_takes_all(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5)
    one, two, canary = bench.router.upstreams
    canary.healthy = False
    assert bench.shares()[2] == 0.0
    canary.healthy, one.healthy, two.healthy = True, False, False
    assert bench.shares() == [0.0, 0.0, 1.0]


def test_what_nobody_renews_is_no_longer_believed(bench: Bench) -> None:
    bench.tell(canary="e2", share=0.5, closed=("e0",))
    bench.clock.now += 31
    bench.router.look(bench.path)
    first, _, canary = bench.shares()
    assert (canary, first > 0) == (0.0, True), "nobody watches the canary, and nobody opens what was closed"
    bench.tell(canary="e2", share=0.5)
    assert bench.shares()[2] > 0.4


def test_what_cannot_be_used_changes_nothing_is_logged_once_with_the_remedy_and_counted(bench: Bench) -> None:
    with capture_logs() as logs:
        bench.tell(canary="elsewhere", share=0.5)
    assert "engines" in logs[0]["reason"]
    assert bench.router.canary is None
    bench.tell(canary="e2", share=0.5)
    errors = bench.router.errors
    bench.path.write_text("{")
    with capture_logs() as logs:
        for _ in range(3):
            bench.router.look(bench.path)
    assert [entry["event"] for entry in logs] == ["routes_unusable"]
    assert (bench.router.errors - errors, bench.router.share) == (1, 0.5)

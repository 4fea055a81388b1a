"""Calls that fail since a swap."""

import msgspec
import pytest

from actors.messages import Exchange, VersionSpan
from actors.monitoring.engine import EngineWatch
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding


class Bench:
    """An engine that has answered a hundred calls through the tap."""

    def __init__(self) -> None:
        self.watch, self.history, self.now = EngineWatch(), History(8, 8, 2), 0.0
        self.swap(0)
        assert self.calls(100, version=0) == []

    def swap(self, version: int = 1) -> None:
        self.now += 300.0
        swap = Swap("serving", version, version - 1, self.now)
        self.history.swapped(swap)
        self.watch.swapped(swap)

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
    ("kind", "told"), [({"version": 1}, []), ({"status": 502}, [("engine-errors", "rollback")])], ids=["fine", "502"]
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

"""Late waits are cancelled at the next look, and no others."""

import anyio
import anyio.lowlevel
import pytest

from daemon.tap.deadlines import Watch

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def cancelled_at(seconds: float, *, phases: list[tuple[float, float]]) -> bool:
    """Whether a look `seconds` after the start cancels a wait with `phases` of (begin, allowed seconds)."""
    clock = Clock()
    watch = Watch(interval=1.0, clock=clock)
    with anyio.CancelScope() as scope, watch.guard(scope) as guard:
        for begin, allowed in phases:
            clock.now = begin
            guard.within(allowed, "phase")
        clock.now = seconds
        watch.look()
        await anyio.lowlevel.checkpoint()
    return scope.cancelled_caught


async def test_a_wait_in_time_goes_on() -> None:
    assert not await cancelled_at(4.9, phases=[(0, 5)])


async def test_a_late_wait_is_cancelled() -> None:
    assert await cancelled_at(5.0, phases=[(0, 5)])


async def test_a_new_phase_has_a_time_of_its_own() -> None:
    assert not await cancelled_at(8.0, phases=[(0, 5), (4, 5)])
    assert await cancelled_at(9.0, phases=[(0, 5), (4, 5)])


async def test_a_wait_that_is_over_is_forgotten() -> None:
    clock = Clock()
    watch = Watch(interval=1.0, clock=clock)
    with anyio.CancelScope() as scope:
        with watch.guard(scope) as guard:
            guard.within(1, "phase")
        clock.now = 99
        watch.look()
        await anyio.lowlevel.checkpoint()
    assert not scope.cancelled_caught


async def test_a_freed_wait_has_no_deadline() -> None:
    clock = Clock()
    watch = Watch(interval=1.0, clock=clock)
    with anyio.CancelScope() as scope, watch.guard(scope) as guard:
        guard.within(1, "phase")
        guard.free()
        clock.now = 99
        watch.look()
        await anyio.lowlevel.checkpoint()
    assert not scope.cancelled_caught

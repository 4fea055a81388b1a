"""What a simulation is played on: time that it moves, no logs, no threads, no disk."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import structlog

_TICK = 1e-6
"""Seconds that pass between two looks at the clock: what happens one after the other has times in that order."""


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += _TICK
        return self.now

    def advance(self, to: float) -> None:
        self.now = max(self.now, to)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Meanwhile no actor logs."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Meanwhile what would run in a worker thread runs here: the store is asked a hundred times a run, and nothing else
    goes on that it could hold up."""

    async def run_sync(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)

    before = anyio.to_thread.run_sync
    anyio.to_thread.run_sync = run_sync
    try:
        yield
    finally:
        anyio.to_thread.run_sync = before


def memory() -> str | None:
    """A directory that is no disk, if there is one: each order is synced to disk before it is sent."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None

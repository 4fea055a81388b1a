"""kill -9 of the daemon, of the learner and of nats-server in mid-demo: the agents notice nothing, nothing is lost or
counted twice, and learning goes on."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.demo.accounts import settle
from daemon.demo.world import World
from tests.support.patience import Late, within

BUDGET = 400.0
"""Seconds for the whole story; 63 on two quiet cores."""
pytestmark = [pytest.mark.chaos, pytest.mark.torch, pytest.mark.timeout(within(BUDGET) + 120), pytest.mark.promise]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "run", seed=7, overrides={}, agents={"agents": 3})
    try:
        world.start()
        world.agents.start()
        yield world
    finally:
        world.stop()


class Story:
    """One installation at work; all that is waited for shares one budget of time."""

    def __init__(self, world: World) -> None:
        self.world, self._end = world, time.monotonic() + within(BUDGET)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Keep the processes alive until `done()`."""
        while not done():
            self.world.check()
            if time.monotonic() > self._end:
                logs = (self.world.directory / "logs").iterdir()
                tails = (f"--- {log.name}\n{log.read_text(errors='replace')[-600:]}" for log in logs)
                raise Late("\n".join((f"not in {within(BUDGET):g} s: {what}", *tails)))
            time.sleep(0.3)


def count(world: World, name: str) -> int:
    """A count of the store, 0 while the daemon is away."""
    status = world.get("/api/status")
    return int(status["counts"].get(name, 0)) if status else 0


def trained(world: World) -> int:
    status = world.get("/api/status")
    return int(status["trained"]) if status else 0


def nats_server(world: World) -> int:
    """Process id of the nats-server that `evolved broker` has become."""
    return int((world.config.state / "broker" / "nats.pid").read_text())


def test_every_process_of_ours_may_be_killed_in_mid_demo(world: World) -> None:
    story = Story(world)
    story.until(lambda: trained(world) >= 2, "two updates before anything is killed")
    for name, victim in (
        ("daemon", lambda: world.daemon.pid),
        ("learner", lambda: world.learner.pid),
        ("nats-server", lambda: nats_server(world)),
    ):
        calls, updates, old = count(world, "exchanges"), trained(world), victim()
        assert old is not None
        os.kill(old, signal.SIGKILL)
        story.until(lambda v=victim, o=old: v() not in (None, o), f"{name} is started again")
        story.until(lambda n=calls: count(world, "exchanges") > n + 20, f"traffic flows after {name}")
        story.until(lambda n=updates: trained(world) > n, f"learning goes on after {name}")
    assert world.broker.restarts == 1
    world.agents.stop(within())
    database = world.config.state / "evolved.db"

    def settled() -> bool:
        accounts = settle(world.journal, f"sqlite:///{database}")
        return accounts.lost == 0 and accounts.outcomes >= accounts.episodes

    with contextlib.suppress(Late):  # what has not come by then is lost: below
        story.until(settled, "every call and every outcome reaches the store")
    accounts = settle(world.journal, f"sqlite:///{database}")
    assert accounts.requests > 100
    assert (accounts.failed, accounts.lost, accounts.doubled, accounts.feedback_failed) == (0, 0, 0, 0)
    assert accounts.outcomes == accounts.episodes

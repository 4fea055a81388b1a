"""kill -9 of the daemon, of the learner and of nats-server in mid-demo: the agents notice nothing, nothing is lost or
counted twice, and learning goes on."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.demo.accounts import settle
from daemon.demo.world import World
from tests.support.patience import Late, wait_until, within

BUDGET = 400.0
"""Seconds for what is waited for; the whole story takes 63 on two quiet cores."""
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


def until(world: World, done: Callable[[], bool], what: str) -> None:
    """Keep the processes alive until `done()`."""

    def there() -> bool:
        world.check()
        return done()

    wait_until(there, what, BUDGET, every=0.3)


def count(world: World, name: str) -> int:
    """A count of the store, 0 while the daemon is away."""
    status = world.get("/api/status")
    return int(status["counts"].get(name, 0)) if status else 0


def trained(world: World) -> int:
    status = world.get("/api/status")
    return int(status["trained"]) if status else 0


def nats_server(world: World) -> int:
    """Process id of the nats-server itself, below `evolved broker`."""
    return int((world.config.state / "broker" / "nats.pid").read_text())


def test_every_process_of_ours_may_be_killed_in_mid_demo(world: World) -> None:
    until(world, lambda: trained(world) >= 2, "two updates before anything is killed")
    server = nats_server(world)
    for name, victim in (
        ("daemon", lambda: world.daemon.pid),
        ("learner", lambda: world.learner.pid),
        ("nats-server", lambda: nats_server(world)),
        ("evolved broker", lambda: world.broker.pid),
    ):
        calls, updates, old = count(world, "exchanges"), trained(world), victim()
        assert old is not None
        os.kill(old, signal.SIGKILL)
        until(world, lambda v=victim, o=old: v() not in (None, o), f"{name} is started again")
        if name == "evolved broker":
            until(world, lambda: nats_server(world) != server, "the orphaned nats-server makes room for another")
        server = nats_server(world)
        until(world, lambda n=calls: count(world, "exchanges") > n + 20, f"traffic flows after {name}")
        until(world, lambda n=updates: trained(world) > n, f"learning goes on after {name}")
    assert world.broker.restarts == 1
    world.agents.stop(within())
    database = world.config.state / "evolved.db"

    def settled() -> bool:
        accounts = settle(world.journal, f"sqlite:///{database}")
        return accounts.lost == 0 and accounts.outcomes >= accounts.episodes

    with contextlib.suppress(Late):  # what has not come by then is lost: below
        until(world, settled, "every call and every outcome reaches the store")
    accounts = settle(world.journal, f"sqlite:///{database}")
    assert accounts.requests > 100
    assert (accounts.failed, accounts.lost, accounts.doubled, accounts.feedback_failed) == (0, 0, 0, 0)
    assert accounts.outcomes == accounts.episodes

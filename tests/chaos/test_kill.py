"""kill -9 of the daemon, of the learner and of nats-server in mid-demo: the agents notice nothing, nothing is lost or
counted twice, and learning goes on."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.demo.accounts import settle
from daemon.demo.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.torch, pytest.mark.timeout(420)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "run", seed=7, overrides={}, agents={"agents": 3})
    try:
        world.start()
        world.agents.start()
        yield world
    finally:
        world.stop()


def until(world: World, done: Callable[[], bool], seconds: float, what: str) -> None:
    """Keep the processes alive until `done()`; fail with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not done():
        world.check()
        if time.monotonic() > end:
            logs = {p.name: p.read_text(errors="replace")[-600:] for p in (world.directory / "logs").iterdir()}
            pytest.fail(f"not within {seconds:.0f} s: {what}\n" + "\n".join(f"--- {k}\n{v}" for k, v in logs.items()))
        time.sleep(0.3)


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
    until(world, lambda: trained(world) >= 2, 120, "two updates before anything is killed")
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
        until(world, lambda v=victim, o=old: v() not in (None, o), 20, f"{name} is started again")
        if name == "evolved broker":
            until(world, lambda: nats_server(world) != server, 20, "the orphaned nats-server makes room for another")
        server = nats_server(world)
        until(world, lambda n=calls: count(world, "exchanges") > n + 20, 60, f"traffic flows after {name}")
        until(world, lambda n=updates: trained(world) > n, 90, f"learning goes on after {name}")
    assert world.broker.restarts == 1
    world.agents.stop(40)
    database = world.config.state / "evolved.db"

    def settled() -> bool:
        accounts = settle(world.journal, f"sqlite:///{database}")
        return accounts.lost == 0 and accounts.outcomes >= accounts.episodes

    until(world, settled, 60, "every call and every outcome reaches the store")
    accounts = settle(world.journal, f"sqlite:///{database}")
    assert accounts.requests > 100
    assert (accounts.failed, accounts.lost, accounts.doubled, accounts.feedback_failed) == (0, 0, 0, 0)
    assert accounts.outcomes == accounts.episodes

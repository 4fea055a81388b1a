"""A daemon among several: alone with SQLite, one shipper a spool, and what one that waits does and answers."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from actors.store.errors import StoreUnavailable
from actors.store.leases import Standing
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.api.listener import Listener
from daemon.api.waiting import Waiting
from daemon.composition import lead as module
from daemon.composition.lead import leads, sole_use
from daemon.errors import StartFailed
from daemon.ingest.shipper import alone
from daemon.settings.reading import load
from tests.support.patience import until
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio
HOLD = """
import sys
from daemon.composition.lead import sole_use
with sole_use(sys.argv[1]):
    print("has it", flush=True)
    sys.stdin.readline()
"""


def test_a_second_daemon_on_one_sqlite_file_is_refused_until_the_first_one_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.3)
    url = f"sqlite:///{tmp_path}/evolved.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[4],
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        with pytest.raises(StartFailed, match=r"another daemon.*database\.url"), sole_use(url):
            pass
        first.kill()
        first.wait()
        with sole_use(url):
            pass


class Lead:
    """A lease that another daemon has."""

    def __init__(self) -> None:
        self.epoch, self.free, self.asked = 0, False, 0

    def take(self) -> Standing:
        self.asked += 1
        if self.asked == 1:
            raise StoreUnavailable("no way to the database")
        return Standing(holder="b", about="http://10.0.0.2:8090", epoch=6 + self.free, taken=self.free)

    def keep(self, epoch: int) -> None:
        self.epoch = epoch


class Door:
    """The door of a daemon that waits, and the answer to whether it leads."""

    def __init__(self, tmp_path: Path) -> None:
        self.port, self.registry, self.lead = free_port(), CollectorRegistry(), Lead()
        config = load(None, [f"state_dir={tmp_path}", f"control.listen=127.0.0.1:{self.port}"])
        self.listener, self.waiting = Listener(config, self.registry), Waiting(self.registry)
        self.began, self.result = anyio.Event(), None

    async def open(self) -> None:
        async def shipper(lifecycle) -> None:
            lifecycle.ready()
            self.began.set()
            await lifecycle.draining.wait()

        self.result = await leads(self.lead, self.waiting, self.listener, {"shipper": shipper}, Notify())


async def test_one_that_waits_works_for_its_machine_and_says_who_leads_until_it_does(tmp_path: Path) -> None:
    door = Door(tmp_path)
    Counter("evolved_test", "A count.", registry=door.registry).inc()
    url = f"http://127.0.0.1:{door.port}"
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http, anyio.create_task_group() as group:

        async def refused() -> bool:
            try:
                return "b leads" in (await http.get("/api/status")).text
            except httpx.TransportError:
                return False

        group.start_soon(door.open)
        await door.began.wait()
        await until(refused, "it says who leads")
        assert (await http.get("/healthz")).status_code == 200
        ready = await http.get("/readyz")
        assert (ready.status_code, "ask it at http://10.0.0.2:8090" in ready.text) == (503, True)
        order = await http.post("/api/freeze", json={})
        assert (order.status_code, "waits to lead: b leads" in order.json()["error"]["message"]) == (503, True)
        assert "evolved_test_total 1.0" in (await http.get("/metrics")).text
        assert door.result is None
        door.lead.free = True
        await until(lambda: door.result is not None, "it leads")
    assert (door.result, door.lead.epoch) == (True, 7)


async def test_one_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    door = Door(tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(door.open)
        await door.began.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: door.result is not None, "it ends")
    assert door.result is False


async def test_of_two_shippers_of_one_spool_one_works_and_the_other_takes_over(tmp_path: Path) -> None:
    working: list[str] = []

    def shipper(name: str):
        async def run(lifecycle) -> None:
            lifecycle.ready()
            working.append(name)
            await lifecycle.draining.wait()

        return run

    one, two = (Supervisor(rng=random.Random(1)) for _ in range(2))
    for name, supervisor in (("one", one), ("two", two)):
        supervisor.add("shipper", alone(tmp_path / "spool", shipper(name)))
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: one.run(signals=False))
        await until(lambda: working, "one works")
        group.start_soon(lambda: two.run(signals=False))
        await until(lambda: two.ready, "the other one is ready")
        assert working == ["one"]
        one.drain()
        await until(lambda: len(working) == 2, "it takes over")
        two.drain()
    assert working == ["one", "two"]

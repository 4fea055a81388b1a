"""A daemon among several: alone with SQLite, one shipper a spool, a standby that sends on what it cannot do."""

import random
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from actors.system.supervisor import Supervisor
from daemon.composition import cluster
from daemon.composition.cluster import StandbyRefuses, sole_use
from daemon.errors import StartFailed
from daemon.ingest.shipper import alone
from tests.support.patience import until

pytestmark = pytest.mark.anyio
HOLD = """
import sys
from daemon.composition.cluster import sole_use
with sole_use(sys.argv[1]):
    print("has it", flush=True)
    sys.stdin.readline()
"""


def test_a_second_daemon_on_one_sqlite_file_is_refused_until_the_first_one_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_LOCK_SECONDS", 0.3)
    url = f"sqlite:///{tmp_path}/evolved.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[4],
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        with pytest.raises(StartFailed, match=rf"process {first.pid}.*database\.url"), sole_use(url):
            pass
        first.kill()
        first.wait()
        with sole_use(url) as sole:
            assert sole


async def ok(request: Request) -> JSONResponse:
    return JSONResponse({"done": request.url.path})


async def test_a_standby_shows_everything_and_takes_orders_and_names_the_leader_for_the_rest() -> None:
    leader = {"here": False, "name": "b", "address": "http://10.0.0.2:8090"}
    app = Starlette(
        routes=[Route("/{path:path}", ok, methods=["GET", "POST"])],
        middleware=[Middleware(StandbyRefuses, leader=lambda: leader)],
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
        assert (await http.get("/api/status")).status_code == 200
        for path in ("/api/freeze", "/api/promote", "/api/rollback", "/api/dead/x/retry"):
            assert (await http.post(path)).status_code == 200, path
        refused = await http.post("/api/forget")
    assert refused.status_code == 409
    assert "send it to http://10.0.0.2:8090, where b leads" in refused.json()["error"]["message"]


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
        await until(lambda: two.state().ready, "the other one is ready")
        assert two.state().actors[0].status == "standby"
        one.drain()
        await until(lambda: len(working) == 2, "it takes over")
        two.drain()
    assert working == ["one", "two"]

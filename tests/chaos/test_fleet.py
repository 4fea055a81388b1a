"""Two real engines, the tap before them, and the swapper: a version goes from its trial to all of them under load."""

import time
from hashlib import sha256
from pathlib import Path

import anyio
import httpx
import pytest

from actors.canary import CanarySettings
from actors.messages import Step, Trajectory, Verdict
from actors.signing import sign
from actors.store import Store
from actors.swapper import Swapper, SwapperSettings
from adapters.engines.client import EngineClient
from daemon.swaps import Swaps
from daemon.tap.settings import UpstreamSettings
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.keys import key_pair, unsigned_weights
from tests.support.swapping import door
from tests.support.tapping import running_tap

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch]
CANARY = CanarySettings(share=0.3, seconds=0.0, runs=10)
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_a_version_rolls_over_two_engines_and_no_request_fails(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    for number in (0, 1):
        checkpoints.write_manifest(checkpoints.write(versions / f"v{number:06d}", number + 1), number)
    options = ("--dev-mode", "--weight-version", "0")
    first = versions / "v000000"
    with embedded_engine(first, *options) as one, embedded_engine(first, *options) as two:
        urls = {"one": one, "two": two}
        upstreams = tuple(UpstreamSettings(url=url, name=name) for name, url in urls.items())
        routes = tmp_path / "routes.json"
        store = Store(f"sqlite:///{tmp_path}/s.db", clock=time.time)
        await store.open()
        async with (
            running_tap(tmp_path, 0, upstreams=upstreams, routes_file=str(routes)) as rig,
            door(one) as (door_one, url_one),
            door(two) as (door_two, url_two),
            EngineClient(url_one, name="one") as engine_one,
            EngineClient(url_two, name="two") as engine_two,
            httpx.AsyncClient(base_url=rig.url, timeout=20.0) as http,
            anyio.create_task_group() as group,
        ):
            engines = {"one": engine_one, "two": engine_two}
            key, keys = key_pair(tmp_path / "keys")
            swapper = Swapper(
                SwapperSettings(canary=CANARY), store=store, engines=engines,
                runner=Swaps(tmp_path / "swaps", engines, inline=frozenset(), weights=unsigned_weights()),
                versions=versions, key=key, keys=keys, clock=time.time, routes=routes,
            )  # fmt: skip
            statuses: list[int] = []

            async def ask() -> None:
                while True:
                    statuses.append((await http.post("/v1/chat/completions", json=ASKED)).status_code)

            async def tick() -> list[tuple]:
                result = await swapper.tick()
                await store.save(result.records)
                return [
                    (getattr(r, "engine", ""), getattr(r, "result", "") or getattr(r, "kind", ""))
                    for r in result.records
                ]

            await swapper.start()
            for _ in range(6):
                group.start_soon(ask)
            await tick()
            manifest = sha256((versions / "v000001" / "manifest.json").read_bytes()).hexdigest()
            verdict = Verdict(
                id="v", version=1, path=str(versions / "v000001"), manifest=manifest, incumbent=0, decision="promote",
                reason="", created=time.time(),
            )  # fmt: skip
            await store.save([sign(verdict, key)])
            await swapper.start()
            assert await tick() == [("one", "swapped")]
            assert [one.trajectories for one in rig.tap.upstreams][1] > 0
            now = time.time()
            for number in range(40):
                run = Trajectory(
                    id=f"r{number}", steps=(Step(exchange_id=f"e{number}"),), outcome=1.0, started=now, ended=now,
                    min_version=number % 2, max_version=number % 2,
                )  # fmt: skip
                await store.save([run])
            assert await tick() == [("", "roll_on"), ("two", "swapped")]
            assert [await engine.version() for engine in engines.values()] == [1, 1]
            group.cancel_scope.cancel()
        await store.aclose()
    assert len(statuses) > 50
    assert set(statuses) == {200}
    (first_pause,), (second_pause,) = door_one.pauses, door_two.pauses
    assert first_pause[1] < second_pause[0], "one always serves"

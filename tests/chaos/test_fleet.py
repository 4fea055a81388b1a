"""Two real engines, the tap before them, and the swapper: a version goes from its trial to all of them under load."""

from pathlib import Path

import anyio
import httpx
import pytest

from actors.deployment.canary import CanarySettings
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.patience import within
from tests.support.rolling import rolling

pytestmark = [pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch, pytest.mark.promise]
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
    first, statuses = versions / "v000000", list[int]()
    with embedded_engine(first, *options) as one, embedded_engine(first, *options) as two:
        async with (
            rolling(tmp_path, versions, {"one": one, "two": two}, CANARY) as fleet,
            httpx.AsyncClient(base_url=fleet.tap.url, timeout=within()) as http,
            anyio.create_task_group() as group,
        ):

            async def ask() -> None:
                while True:
                    statuses.append((await http.post("/v1/chat/completions", json=ASKED)).status_code)

            for _ in range(6):
                group.start_soon(ask)
            await fleet.tick()
            await fleet.promote(1)
            assert await fleet.tick() == [("one", "swapped")]
            assert [one.trajectories for one in fleet.tap.tap.upstreams][1] > 0
            await fleet.succeed(40)
            assert await fleet.tick() == [("", "roll_on"), ("two", "swapped")]
            assert [await engine.version() for engine in fleet.engines.values()] == [1, 1]
            group.cancel_scope.cancel()
    assert len(statuses) > 50
    assert set(statuses) == {200}
    (first_pause,), (second_pause,) = fleet.doors["one"].pauses, fleet.doors["two"].pauses
    assert first_pause[1] < second_pause[0], "one always serves"

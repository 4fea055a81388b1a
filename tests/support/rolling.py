"""Two engines, the tap before them and the swapper over them, in the test's own process; ticks come from the test.

Swaps go through a door before each engine, which notes when it was paused. Agents go through the tap, straight to it.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper
from actors.messages import Step, Trajectory
from actors.messages.signing import SigningKey
from actors.store import Store
from adapters.engines.vllm import VllmEngine
from daemon.tap.settings import UpstreamSettings
from daemon.upkeep.swaps import Swaps
from tests.support.databases import opened_store
from tests.support.keys import key_pair, unsigned_weights
from tests.support.swapping import Door, door, promotion
from tests.support.tapping import Rig, running_tap


class Rolling:
    """The swapper, and what it works on."""

    def __init__(
        self, swapper: Swapper, store: Store, key: SigningKey, engines: Mapping[str, VllmEngine],
        doors: Mapping[str, Door], tap: Rig, versions: Path,
    ) -> None:  # fmt: skip
        self.swapper, self.store, self.engines, self.doors, self.tap = swapper, store, engines, doors, tap
        self._key, self._versions = key, versions

    async def tick(self) -> list[tuple[str, str]]:
        """One reconciliation; (engine, what came of it) or ("", directive) of each record."""
        result = await self.swapper.tick()
        await self.store.save(result.records)
        return [(getattr(r, "engine", ""), getattr(r, "result", "") or getattr(r, "kind", "")) for r in result.records]

    async def promote(self, version: int) -> None:
        """As if the gate had promoted it."""
        await self.store.save([promotion(version, self._versions / f"v{version:06d}", self._key)])
        await self.swapper.start()

    async def succeed(self, runs: int) -> None:
        """Trajectories that end well, of either version in turns."""
        now = time.time()
        for number in range(runs):
            run = Trajectory(
                id=f"r{number}", steps=(Step(exchange_id=f"e{number}"),), outcome=1.0, started=now, ended=now,
                min_version=number % 2, max_version=number % 2,
            )  # fmt: skip
            await self.store.save([run])


@contextlib.asynccontextmanager
async def rolling(
    directory: Path,
    versions: Path,
    urls: Mapping[str, str],
    canary: CanarySettings,
    keys_of: Mapping[str, str] | None = None,
) -> AsyncIterator[Rolling]:
    """Engines by name at `urls`, which serve version 0 of `versions`; `keys_of` has the API keys of those that want
    one."""
    shown = keys_of or {}
    upstreams = tuple(UpstreamSettings(url=url, name=name) for name, url in urls.items())
    routes = directory / "routes.json"
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(f"sqlite:///{directory}/s.db"))
        rig = await stack.enter_async_context(running_tap(directory, 0, upstreams=upstreams, routes_file=str(routes)))
        doors = {name: await stack.enter_async_context(door(url)) for name, url in urls.items()}
        engines = {
            name: await stack.enter_async_context(VllmEngine(url, name=name, key=shown.get(name, "")))
            for name, (_, url) in doors.items()
        }
        key, keys = key_pair(directory / "keys")
        swapper = Swapper(
            canary=canary, store=store, engines=engines,
            runner=Swaps(
                directory / "swaps", engines, inline=frozenset(), weights=unsigned_weights(),
                store=store,
            ),
            versions=versions, key=key, keys=keys, clock=time.time, routes=routes,
        )  # fmt: skip
        await swapper.start()
        yield Rolling(swapper, store, key, engines, {name: one for name, (one, _) in doors.items()}, rig, versions)

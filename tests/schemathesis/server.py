"""A control API over a fresh store, on 127.0.0.1, with lessons and trajectories in it: `server.py PORT DIRECTORY`."""

import sys
import time
from pathlib import Path

import anyio
from prometheus_client import CollectorRegistry

from actors.deployment.fleet import Fleet
from actors.messages import Directive
from actors.store import Store
from actors.system.lifecycle import Lifecycle, Restart, Unit
from daemon.api.control import Control
from daemon.api.experience import ExperienceApi
from daemon.api.killswitch import KillSwitch
from daemon.api.live import LiveRoutes
from daemon.api.orders import Orders
from daemon.api.run_story import RunStoryApi
from daemon.api.trajectories import TrajectoryApi
from daemon.api.versions import VersionApi
from daemon.live.registry import Live
from daemon.live.settings import LiveSettings
from daemon.processes.asgi import serve
from daemon.settings.control import ControlSettings
from tests.support.credited import attributed
from tests.support.experience import Desk, lesson
from tests.support.keys import key_pair


async def main(port: int, directory: Path) -> None:
    store = Store(f"sqlite:///{directory}/store.db", clock=time.time)
    await store.open()
    await store.save([lesson("a", tenant="default"), lesson("b", state="candidate"), attributed("t", goal="fly")])
    desk = Desk(store, directory, clock=time.time)
    key, keys = key_pair(directory / "keys")

    async def send(directive: Directive) -> None:
        await store.save([directive])

    async def retry(key: str) -> bool:
        return False

    orders = Orders(
        store=store, fleet=Fleet, kill=KillSwitch(directory), send=send, key=key, keys=keys, clock=time.time
    )
    sums = {"kind": "callables", "functions": ["math:sqrt"], "policy": {"read_only": ["*"]}}
    live = Live({"sums": sums}, LiveSettings(), directory)
    control = Control(
        store=store, registry=CollectorRegistry(), actors=tuple, orders=orders, retry=retry, describe={},
        routes=[
            *ExperienceApi(desk.pool, desk.forgetter).routes(), *LiveRoutes(live).routes(),
            *TrajectoryApi(store).routes(), *RunStoryApi(store).routes(),
            *VersionApi(store, keys, directory / "versions").routes(),
        ],
    )  # fmt: skip
    settings = ControlSettings(port=port)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(live.run, Lifecycle(Unit("live", live.run, Restart()), anyio.Event(), lambda: None))
            await serve(control.app(settings.allowed_hosts), settings)
    finally:
        await store.aclose()


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), Path(sys.argv[2]), backend="trio")

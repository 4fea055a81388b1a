"""The swapper as a daemon that may be killed, and an engine's door at which requests can be held up.

The daemon is what `daemon.composition.service` builds, less everything that a swap does not need: supervisor, runner,
store, swap program; the bus is in memory. It is forked from a server that has everything imported, in a session of its
own.
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import anyio
import httpx
import structlog

from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper
from actors.messages import Verdict
from actors.messages.signing import SigningKey, sign
from actors.store import Store
from actors.system.lifecycle import Lifecycle
from actors.system.runner import drive
from actors.system.supervisor import Supervisor
from adapters.engines.vllm import VllmEngine
from daemon.upkeep.swaps import Swaps
from tests.support.databases import opened_store
from tests.support.engine import Asked, Engine, running_engine
from tests.support.keys import key_pair, unsigned_weights
from tests.support.patience import within
from tests.support.stub_bus import StubBus

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.swapping"])
_LOADS = ("reload_weights", "evolved_load")


def open_store(state: Path) -> Store:
    return Store(f"sqlite:///{state}/evolved.db", clock=time.time)


def promotion(version: int, path: Path, key: SigningKey) -> Verdict:
    """The verdict of a gate that has promoted the version at `path`."""
    verdict = Verdict(
        id=f"verdict-{version}", version=version, path=str(path), incumbent=0, decision="promote", reason="better",
        manifest=sha256((path / "manifest.json").read_bytes()).hexdigest(), created=time.time(),
    )  # fmt: skip
    return sign(verdict, key)


async def promote(state: Path, version: int, path: Path) -> None:
    """As if the gate had promoted the version."""
    async with opened_store(f"sqlite:///{state}/evolved.db") as store:
        await store.save([promotion(version, path, key_pair(state / "keys")[0])])


class SwapDaemon:
    """One life of the daemon."""

    def __init__(self, state: Path, versions: Path, url: str) -> None:
        self._process = _CONTEXT.Process(target=_main, args=(state, versions, url), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """kill -9, the whole process group."""
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(self._process.pid or 0), signal.SIGKILL)
        self._process.join(within())


def _main(state: Path, versions: Path, url: str) -> None:
    os.setsid()
    structlog.configure(logger_factory=structlog.WriteLoggerFactory((state / "daemon.log").open("a", buffering=1)))
    anyio.run(_serve, state, versions, url)


async def _serve(state: Path, versions: Path, url: str) -> None:
    store = open_store(state)
    await store.open()
    async with VllmEngine(url, name="serving") as engine:
        engines = {"serving": engine}
        swaps = Swaps(
            state / "swaps", engines, inline=frozenset(), weights=unsigned_weights(), store=store,
        )  # fmt: skip
        key, keys = key_pair(state / "keys")
        swapper = Swapper(
            canary=CanarySettings(), store=store, engines=engines, runner=swaps, versions=versions, key=key,
            keys=keys, clock=time.time,
        )  # fmt: skip
        supervisor = Supervisor(rng=random.Random(0))

        async def act(lifecycle: Lifecycle) -> None:
            await drive(swapper, StubBus(), store, lifecycle, rng=random.Random(0))

        supervisor.add("swapper", act)
        await supervisor.run()


class Door:
    """Passes requests on to an engine; the one at the point is held up until the gate opens.

    Args:
        point: (last part of the path, which one counting from 1, "before" or "after" the engine has acted on it). Of a
            /collective_rpc it is the method instead; the one that loads is "load" with the plug-in and without.
    """

    def __init__(self, url: str, point: tuple[str, int, str] = ("", 0, "")) -> None:
        # vLLM closes a connection that was idle for 5 s; who sends just then gets no answer.
        limits = httpx.Limits(keepalive_expiry=2.0)
        self._http = httpx.AsyncClient(base_url=url, timeout=within(), limits=limits, trust_env=False)
        self._verb, self._number, self._side = point
        self.count = 0
        """Requests at the point, so far."""
        self.pauses: list[tuple[float, float]] = []
        """(pause asked for, resume answered), monotonic seconds."""
        self._paused = 0.0
        self.reached, self.gate = anyio.Event(), anyio.Event()

    async def __call__(self, engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        method, target, _ = asked.line.decode().split(" ", 2)
        verb = target.partition("?")[0].rpartition("/")[2]
        if verb == "collective_rpc":
            method_there = json.loads(asked.body)["method"]
            verb = "load" if method_there in _LOADS else method_there
        here = verb == self._verb
        if verb == "pause":
            self._paused = time.monotonic()
        self.count += here
        held = here and self.count == self._number
        if held and self._side == "before":
            await self._hold()
        headers = {"content-type": asked.headers.get("content-type", "application/json")}
        if "authorization" in asked.headers:
            headers["authorization"] = asked.headers["authorization"]
        try:
            answer = await self._http.request(method, target, content=asked.body, headers=headers)
        except httpx.TransportError as error:
            # For the caller to deal with, as without a door: raised here it would end the test without its name.
            print(f"the door's engine: {method} {target}: {error!r}")
            return False
        if verb == "resume":
            self.pauses.append((self._paused, time.monotonic()))
        if held and self._side == "after":
            await self._hold()
        kind = answer.headers.get("content-type", "application/json").encode()
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the caller may be dead by now
            await stream.send(
                b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
                % (answer.status_code, kind, len(answer.content), answer.content)
            )
        return True

    async def _hold(self) -> None:
        self.reached.set()
        await self.gate.wait()

    async def aclose(self) -> None:
        await self._http.aclose()


@contextlib.asynccontextmanager
async def door(url: str, point: tuple[str, int, str] = ("", 0, "")) -> AsyncIterator[tuple[Door, str]]:
    """A door before the engine at `url`, and its own URL."""
    made = Door(url, point)
    async with running_engine() as front:
        front.script = made
        yield made, f"http://127.0.0.1:{front.port}"
    await made.aclose()


def swap_programs(state: Path) -> list[int]:
    """Process ids of the swap programs that work for `state`."""
    wanted, found = str(state / "swaps").encode(), list[int]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"adapters.engines.swap" in line and wanted in line:
                found.append(int(entry.name))
    return found

"""A control API as the daemon has it, over a real store: `server.py PORT DIRECTORY full|empty`.

`full` has the records of `tests.browser.records`. `empty` has none, and takes an admin key, which lies in admin.key.

Orders go into the store and the fleet follows, as the swapper would have it: what a page orders, it must see happen.
"""

import sys
import time
from pathlib import Path

import anyio
import msgspec

from actors.credit.attributor import Attributor
from actors.deployment.fleet import EngineView, Fleet
from actors.messages import Directive, Serving
from actors.store import Store
from actors.system.lifecycle import ActorState, Lifecycle
from adapters.judges.rules import RulesJudge
from daemon.live.registry import Live
from daemon.processes.asgi import serve
from daemon.settings.control import ControlSettings
from daemon.tap.keys import KeyRing, add_key
from tests.browser import records
from tests.support.experience import Desk


class Engines(Desk):
    """The control API, and what serves: it goes back when a rollback is ordered."""

    def serve(self, version: int, banned: tuple[int, ...]) -> None:
        view = EngineView(
            version=version, since=records.START + 600, reachable=True, paused=False, canary_share=0.0, note=""
        )
        self.fleet = Fleet(stable=version, good=(0, 1, 3), banned=banned, engines={"serving": view})

    async def obey(self, directive: Directive) -> None:
        """Record the order, and carry it out."""
        await super().obey(directive)
        if directive.kind == "rollback":
            to, bad = int(directive.details["to"]), int(directive.details["version"])
            swap = Serving(
                id=f"back-{directive.id}", engine="serving", version=to, previous=bad, path=f"/v{to}", result="swapped",
                since=time.time(), paused_seconds=0.061, total_seconds=0.9,
            )  # fmt: skip
            await self.store.save([swap])
            self.serve(to, (2, bad))

    async def retry(self, key: str) -> bool:
        if await self.store.revive(key) is None:
            return False
        await self.store.delete_dead_letter(key)
        return True


async def main(port: int, directory: Path, full: bool) -> None:
    store = Store(f"sqlite:///{directory}/store.db", clock=time.time)
    await store.open()
    sums = {"kind": "callables", "functions": ["math:sqrt"], "policy": {"read_only": ["sqrt"], "deny": ["*drop*"]}}
    live = Live({"sums": sums} if full else {}, directory)
    desk = Engines(
        store, directory, time.time, live, actors=lambda: _ACTORS if full else (),
        describe={"tap": "http://127.0.0.1:8000"}, learning=records.learning if full else dict,
        judge=Attributor(judge=RulesJudge(), store=store).report,
    )  # fmt: skip
    if full:
        await records.fill(store, desk.key)
        desk.serve(3, (2,))
    settings = ControlSettings(port=port)
    app = desk.control.app(settings.allowed_hosts, None if full else _keys(directory))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(live.run, Lifecycle("live"))
            await serve(app, "127.0.0.1", port)
    finally:
        await store.aclose()


def _keys(directory: Path) -> KeyRing:
    text, _ = add_key(directory / "keys.json", tenant="ops", scope="admin", now=time.time())
    (directory / "admin.key").write_text(text)
    return KeyRing(directory / "keys.json", clock=time.time)


def _actor(name: str, status: str = "ready", **fields: object) -> ActorState:
    values = {"restarts": 0, "last_error": "", "beat_age": 0.4, "note": "", "critical": True}
    return msgspec.convert({"name": name, "status": status, **values, **fields}, ActorState)


_ACTORS = (
    _actor("assembler"), _actor("attributor", "ready", note="judge away"), _actor("swapper"),
    _actor("live", "ready", restarts=2, last_error="connection refused", critical=False),
)  # fmt: skip

if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "full", backend="trio")

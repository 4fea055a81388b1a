"""A swapper with engines whose versions tests set, and the runs that users have there."""

from pathlib import Path

import msgspec

from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper
from actors.messages import Directive, Message, Serving, Step, ToolCall, Trajectory, Verdict
from actors.messages.routes import Routes, read_routes
from actors.messages.signing import sign
from actors.system.actor import Received, Result
from actors.versions.desired_state import FORWARD
from actors.versions.version_timeline import VersionTimeline
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore, candidate
from tests.support.keys import key_pair

Records = list[Serving | Directive]


class _Runner(FakeRunner):
    """Notes with every swap what the tap was told to leave alone."""

    def __init__(self, bench: "Bench") -> None:
        super().__init__(*bench.engines.values())
        self.bench, self.closed = bench, list[tuple[str, ...]]()

    async def swap(self, engine, path, version, *, manifest="", last_good=None, last_version=-1):
        if len(self.engines) > 1:
            self.closed.append(self.bench.routes.closed)
        more = {"manifest": manifest, "last_good": last_good, "last_version": last_version}
        return await super().swap(engine, path, version, **more)


class Bench:
    """Engines `a`, `b`, `c` ... at version 0."""

    def __init__(self, tmp_path: Path, size: int = 1) -> None:
        self.path, self.clock, self.store = tmp_path, Clock(), FakeStore()
        self.engines = {name: FakeEngine(name) for name in "abc"[:size]}
        self.runner = _Runner(self)
        self.key, self.keys = key_pair(tmp_path / "keys")
        self.times = VersionTimeline(self.clock)
        self.halted = ""
        self.swapper = self._make()
        candidate(0, tmp_path / "v000000")

    def _make(self) -> Swapper:
        return Swapper(
            canary=CanarySettings(),
            store=self.store,
            engines=self.engines,
            runner=self.runner,
            versions=self.path,
            key=self.key,
            keys=self.keys,
            clock=self.clock,
            times=self.times,
            routes=self.path / "routes.json",
            halted=lambda: self.halted,
        )

    async def restart(self) -> None:
        self.swapper = self._make()
        await self.swapper.start()

    async def tell(self, *messages: Message) -> Records:
        self.store.save(messages)
        return self._take(await self.swapper.handle([Received(message.id, "any", message) for message in messages]))

    async def tick(self, seconds: float = 0.0) -> Records:
        """Look again, `seconds` later."""
        self.clock.now += seconds
        return self._take(await self.swapper.tick())

    def _take(self, result: Result) -> Records:
        self.clock.now += 1
        self.store.save(result.records)
        assert [output.message for output in result.outputs] == list(result.records)
        return list(result.records)

    def promote(self, version: int, **changes) -> Verdict:
        made = candidate(version, self.path / f"v{version:06d}")
        verdict = Verdict(
            id=f"verdict-{version}-{self.clock.now}", version=version, path=made.path, manifest=made.manifest,
            incumbent=0, decision="promote", reason="better", created=self.clock.now,
        )  # fmt: skip
        return sign(msgspec.structs.replace(verdict, **changes), self.key)

    def order(self, kind, **details: str) -> Directive:
        if kind in ("freeze", "thaw"):
            self.store.is_frozen = kind == "freeze"
        if kind == "promote":
            made = candidate(int(details["version"]), self.path / f"v{int(details['version']):06d}")
            details |= {"path": made.path, "manifest": made.manifest}
        at = self.clock.now
        order = Directive(id=f"{kind}-{at}", kind=kind, reason="", origin="test", created=at, details=details)
        return sign(order, self.key) if kind in FORWARD else order

    async def stable(self, version: int) -> Records:
        """Promote `version`, and say by hand that it has been on trial for long enough."""
        await self.tell(self.promote(version))
        return await self.tell(self.order("promote", version=str(version)))

    async def begin(self, version: int = 3) -> Records:
        """Put `version` on trial beside 100 runs of version 0, 80 of them solved: before it, and elsewhere."""
        self.runs(0, 100, solved=80, ago=10)
        found = await self.tell(self.promote(version))
        if len(self.engines) > 1:
            self.runs(0, 100, solved=80)
        return found

    def runs(
        self, version: int, count: int, *, solved: int | None = None, errors: int = 0, ago: float = 0.0, **changes
    ) -> list[Trajectory]:
        """`count` production runs under `version` that began and ended `ago` seconds ago; without `solved` nobody has
        said yet how they went."""
        at, made = self.clock.now - ago, list[Trajectory]()
        for n in range(count):
            key = f"{at}-{version}-{sorted(changes.items())}-{solved is None}-{n}"
            observed = '{"error": "no"}' if n < errors else "{}"
            step = Step(exchange_id=f"e-{key}", tool_calls=(ToolCall("book", "{}"),), observation=observed)
            outcome = None if solved is None else float(n < solved)
            run = Trajectory(
                id=f"run-{key}", steps=(step,), outcome=outcome, started=at, ended=at, min_version=version,
                max_version=version,
            )  # fmt: skip
            made.append(msgspec.structs.replace(run, **changes))
        self.store.save(made)
        return made

    @property
    def versions(self) -> list[int]:
        return [engine.current for engine in self.engines.values()]

    @property
    def routes(self) -> Routes:
        return read_routes(self.path / "routes.json")

    @property
    def standing(self) -> tuple[int | None, int | None, int | None]:
        """(stable, on trial, waiting)."""
        fleet = self.swapper.fleet
        return fleet.stable, fleet.canary, fleet.waiting

    def back(self, version: int = 3) -> list[tuple]:
        """What is done about a trial that ended badly."""
        return [("rollback", version), ("swapped", "a", 0)]

    def on(self, version: int = 3) -> list[tuple]:
        """What is done about a trial that ended well."""
        return [("roll_on", version), *(("swapped", name, version) for name in list(self.engines)[1:])]


def kinds(records: Records) -> list[tuple]:
    return [
        (item.kind, int(item.details["version"]))
        if isinstance(item, Directive)
        else (item.result, item.engine, item.version)
        for item in records
    ]

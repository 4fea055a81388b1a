"""A gatekeeper with a trial that says what it is told to, and held-out runs of production."""

import json
from pathlib import Path

import anyio
import msgspec

from actors.gate.gatekeeper import Gatekeeper
from actors.gate.sandbox_trial import Comparison
from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    Attribution,
    Candidate,
    Directive,
    Serving,
    Step,
    StepLabel,
    TokenRow,
    Trajectory,
    Verdict,
    pack_array,
)
from actors.system.actor import Received, Result
from actors.versions.version_timeline import VersionTimeline
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore, candidate
from tests.support.keys import key_pair

Said = list[Verdict | Directive]
HELD_OUT = [name for name in (f"t{number}" for number in range(4000)) if held_out(name)]
NOT_HELD_OUT = "not held out"
TOKENS = 4
"""That the model sampled in each run of `production`."""


class Scripted:
    """A trial that says what it is told to."""

    def __init__(self) -> None:
        self.says = "promote"
        self.asked: list[tuple[int, int]] = []
        self.far = True
        self.served: list[int] = []

    async def compare(self, candidate, incumbent, served, load, *, deadline=0.0):
        await anyio.lowlevel.checkpoint()
        self.asked.append((candidate, incumbent))
        self.served = list(served)
        figures = {"evidence": 5.0, "evidence_needed": 32.0} if self.says == "wait" else {}
        return Comparison(self.says, f"said {self.says}", figures, self.far)


class Bench:
    """Version 0 serves."""

    def __init__(self, path: Path, **settings) -> None:
        self.path, self.clock, self.store, self.trial = path, Clock(), FakeStore(), Scripted()
        self.engine = FakeEngine()
        self.runner = FakeRunner(self.engine)
        self.key, self.keys = key_pair(path / "keys")
        self.times = VersionTimeline(self.clock)
        self.heard: list[int] = []
        self.made: dict[int, Candidate] = {}
        self.make(0, -1)
        self.serve(0)
        self.gate = self.build(**settings)

    def build(self, **settings) -> Gatekeeper:
        return Gatekeeper(
            **{"gate_every": 1, "gate_seconds": 60.0, **settings},
            store=self.store, shadow=self.engine, shadow_name="shadow", runner=self.runner, trial=self.trial,
            versions=self.path, key=self.key, clock=self.clock, times=self.times, loaded=self.heard.append,
        )  # fmt: skip

    async def restart(self) -> None:
        self.gate = self.build()
        await self.gate.start()

    def make(self, version: int, parent: int) -> Candidate:
        self.clock.now += 1
        path = self.path / f"v{version:06d}"
        self.made[version] = candidate(version, path, parent=parent, created=self.clock.now)
        return self.made[version]

    def serve(self, version: int, result: str = "swapped") -> None:
        self.clock.now += 1
        self.store.save([
            Serving(
                id=f"s{version}-{self.clock.now}", engine="serving", version=version, previous=0, path="",
                result=result, since=self.clock.now,
            )
        ])  # fmt: skip

    def roll_back(self, version: int, to: int = 0) -> None:
        self.clock.now += 1
        details = {"version": str(version), "to": str(to)}
        at = self.clock.now
        order = Directive(id=f"r{version}", kind="rollback", reason="", origin="x", created=at, details=details)
        self.store.save([order])

    async def train(self, version: int, parent: int) -> Said:
        return await self.hear(self.make(version, parent))

    async def go_back(self, version: int) -> Said:
        self.clock.now += 1
        told = {"id": f"back-{self.clock.now}", "created": self.clock.now, "answer": "went_back"}
        return await self.hear(msgspec.structs.replace(self.made[version], **told))

    async def hear(self, *candidates: Candidate) -> Said:
        received = [Received(one.id, "policy.candidate", one) for one in candidates]
        return self._take(await self.gate.handle(received))

    async def tick(self, seconds: float = 61.0) -> Said:
        self.clock.now += seconds
        return self._take(await self.gate.tick())

    def _take(self, result: Result) -> Said:
        self.store.save(result.records)
        return [output.message for output in result.outputs]


def production(
    name: str,
    ended: float,
    *,
    outcome: float | None,
    version: int = 0,
    tools=("win",),
    ids=(),
    tenant="default",
    caller="",
    logprob=-0.5,
    why_not="",
    **sampled,
) -> Attributed:
    """A run of two given and four sampled tokens.

    Args:
        ids: of its first tokens.
        why_not: why a second call of it has no tokens.
    """
    ids = [*ids, *range(len(ids), 2 + TOKENS)]
    row = TokenRow(
        ids=pack_array(ids, "<i4"),
        step=pack_array([-1, -1] + [0] * TOKENS, "<i2"),
        logprobs=pack_array([0, 0] + [logprob] * TOKENS, "<f4"),
        versions=pack_array([-1, -1] + [version] * TOKENS, "<i4"),
        **sampled,
    )
    steps = (Step(exchange_id=f"e-{name}", row=0), *([Step(exchange_id="e", why_not=why_not)] if why_not else []))
    trajectory = Trajectory(
        id=name, tools=json.dumps([{"function": {"name": tool}} for tool in tools]).encode(), steps=steps, rows=(row,),
        outcome=outcome, started=ended - 1, ended=ended, min_version=version, max_version=version, tenant=tenant,
        caller=caller,
    )  # fmt: skip
    attribution = Attribution(labels=(StepLabel("GOOD"),), judge="rules", rubric="1")
    return Attributed(id=name, trajectory=trajectory, attribution=attribution)


def loader(engine: FakeEngine):
    async def load(version: int) -> None:
        await anyio.lowlevel.checkpoint()
        engine.current = version

    return load

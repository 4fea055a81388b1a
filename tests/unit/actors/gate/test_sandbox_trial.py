"""Held-out tasks, batch by batch; and planted candidates that must not come through."""

import json
import math

import anyio
import msgspec
import pytest

from actors.gate import forgetting
from actors.gate.sandbox_trial import Records, SandboxTrial, SandboxTrialSettings
from actors.messages import Task, derived_id
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeStore
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
SETTINGS = SandboxTrialSettings(batch=16, tasks=64, max_tasks=128, attempts=2, margin=0.1, first_seed=0)


class Lucky(FakeEngine):
    """Each version has luck of its own, and may be slow."""

    seconds = 0.0

    async def chat(self, body):
        await anyio.sleep(self.seconds)
        return await super().chat({**body, "seed": f"{body['seed']}-{self.current}"})


class TwoFamilies(FakeEnvironment):
    """Every other task is of another kind, as its goal says."""

    def sample(self, seed, split, families):
        kind = "buy" if seed % 2 else "sell"
        spec = {"seed": seed, "split": split}
        return Task(id=derived_id(split, seed), goal=f"{kind} a thing", environment=self.name, spec=spec)


class Specialist(Lucky):
    """Version 1 does one kind of task perfectly and has forgotten the other; version 0 does both fairly."""

    def __init__(self) -> None:
        super().__init__()
        self._minds = {"sell": Lucky(skill={0: 0.7, 1: 0.3}), "buy": Lucky(skill={0: 0.7, 1: 1.0})}

    async def chat(self, body):
        mind = self._minds["sell" if "sell" in json.dumps(body["messages"]) else "buy"]
        mind.current = self.current
        return await mind.chat(body)


class Desk:
    """A trial with its engine."""

    def __init__(self, engine: FakeEngine, environment: FakeEnvironment | None = None, **settings) -> None:
        self.engine, self.environment, self.store = engine, environment or FakeEnvironment(), FakeStore()
        merged = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | settings
        self.trial = SandboxTrial(
            SandboxTrialSettings(**merged), environment=self.environment, engine=engine, store=self.store
        )

    async def load(self, version: int) -> None:
        await anyio.lowlevel.checkpoint()
        self.engine.current = version

    async def compare(self, candidate: int = 1, incumbent: int = 0, served=(0,), **more):
        self.engine.current = candidate
        return await self.trial.compare(candidate, incumbent, served, self.load, **more)


async def test_what_is_clear_is_decided_at_the_first_look():
    found = await Desk(Lucky(skill={0: 0.2, 1: 1.0})).compare()
    assert (found.decision, found.measurements["looks"], found.measurements["tasks"]) == ("promote", 1, 16)


async def test_what_is_not_clear_goes_on_batch_by_batch_to_the_budget_and_the_next_verdict_goes_on_from_there():
    desk = Desk(Lucky(skill={0: 0.5, 1: 0.5}), alpha=0.001, beta=0.001)
    first = await desk.compare()
    assert (first.decision, first.measurements["looks"], first.measurements["tasks"]) == ("hold", 4, 64)
    played = len(desk.environment.begun)
    second = await desk.compare()
    assert second.measurements["tasks"] == 128
    assert len(desk.environment.begun) == 2 * played, "nothing is played twice"
    third = await desk.compare()
    assert (third.decision, third.measurements["tasks"]) == ("hold", 128)
    assert len(desk.environment.begun) == 2 * played


async def test_avg_of_the_attempts_is_measured_with_its_limits():
    found = await Desk(Lucky(skill={0: 0.1, 1: 0.6}), attempts=4).compare()
    figures = found.measurements
    assert figures["attempts"] == 4
    assert figures["low"] < figures["success"] < figures["high"]


async def test_a_candidate_that_forgot_a_family_is_rejected_although_it_is_better_on_average(monkeypatch):
    desk = Desk(Specialist(), TwoFamilies(), tasks=128)
    found = await desk.compare()
    assert found.decision == "reject"
    assert '"sell a thing"' in found.reason
    assert found.measurements["families_lost"] == 1
    monkeypatch.setattr(forgetting, "_HEALTHY", 1.1)
    everything = await Desk(Specialist(), TwoFamilies()).compare()
    assert everything.decision != "reject", "the average alone does not show it"


async def test_what_is_measured_by_the_deadline_counts_and_only_whole_batches_do():
    engine = Lucky(skill={0: 0.5, 1: 0.5})
    engine.seconds = 1.0
    desk = Desk(engine, alpha=0.001, beta=0.001)
    found = await desk.compare(deadline=anyio.current_time() + 11.0)
    assert found.decision == "hold"
    assert "out of time" in found.reason
    assert found.measurements["out_of_time"] == 1
    assert found.measurements["tasks"] in (16, 32, 48)
    assert engine.current == 1, "the candidate is back in the shadow engine"


async def test_the_record_of_a_version_that_meets_many_candidates_stays_bounded():
    desk = Desk(Lucky(skill={0: 0.9} | dict.fromkeys(range(1, 8), 0.1)), max_tasks=16)
    for candidate in range(1, 8):
        await desk.compare(candidate)
    (data,) = desk.store.state.values()
    assert len(msgspec.msgpack.decode(data, type=Records).attempts[0]) == 32


async def test_no_time_at_all_is_a_hold():
    found = await Desk(Lucky()).compare(deadline=-math.inf)
    assert (found.decision, found.measurements["looks"]) == ("hold", 0)


async def test_worse_weights_are_rejected():
    found = await Desk(Lucky(skill={0: 0.8, 1: 0.4})).compare()
    assert found.decision == "reject"
    assert found.measurements["incumbent_high"] < 0

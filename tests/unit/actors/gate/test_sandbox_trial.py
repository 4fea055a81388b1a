"""Held-out tasks, batch by batch; families of them; and planted candidates that must not come through."""

import json
import math
import random

import anyio
import msgspec
import pytest

from actors.gate import forgetting as suite
from actors.gate.forgetting import Family, forgetting
from actors.gate.sandbox_trial import Records, SandboxTrial, SandboxTrialSettings
from actors.gate.scores import summarize
from actors.messages import Task, derived_id
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeStore
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.unit.actors.gate.made import loader

pytestmark = pytest.mark.anyio
SETTINGS = SandboxTrialSettings(batch=16, tasks=64, max_tasks=128, attempts=2, margin=0.1, first_seed=0)
SKILL = {0: 0.3, 1: 0.9, 2: 0.9, 3: 0.9, 4: 0.1, 5: 0.3}


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
        self.settings = msgspec.structs.replace(SETTINGS, **settings)
        self.trial = SandboxTrial(self.settings, environment=self.environment, engine=engine, store=self.store)
        self.load = loader(engine)

    async def compare(self, candidate: int = 1, incumbent: int = 0, served=(0,), **more):
        self.engine.current = candidate
        return await self.trial.compare(candidate, incumbent, served, self.load, **more)


@pytest.mark.parametrize(
    ("skill", "decision"), [({0: 0.2, 1: 1.0}, "promote"), ({0: 0.9, 1: 0.1}, "reject")], ids=["better", "worse"]
)
async def test_what_is_clear_is_decided_at_the_first_look(skill, decision):
    desk = Desk(Lucky(skill=skill), attempts=4)
    found = await desk.compare()
    figures = found.measurements
    assert (found.decision, figures["looks"], figures["tasks"], figures["attempts"]) == (decision, 1, 16, 4)
    assert figures["low"] < figures["success"] < figures["high"] or figures["success"] in (0, 1)
    assert {split for split, _ in desk.environment.begun} == {"heldout"}
    assert desk.engine.current == 1, "the candidate is back in the shadow engine"


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


async def test_a_candidate_must_match_the_best_that_ever_served_unless_the_desk_is_another():
    desk = Desk(FakeEngine(skill=SKILL), batch=30, tasks=60, max_tasks=180, attempts=1)
    await desk.compare(1)
    begun = {number for _, number in desk.environment.begun}
    desk.environment.begun.clear()
    found = await desk.compare(5, 0, [0, 1])
    assert (found.decision, found.measurements["best_version"]) == ("reject", 1)
    assert not begun & {number for _, number in desk.environment.begun}, "tasks that chose nobody"
    desk.environment.names = ["win", "lose", "finish", "extra"]
    found = await desk.compare(3, 0, [0, 1])
    assert (found.measurements["best_void"], "best_version" in found.measurements) == (1.0, False)


async def test_an_environment_that_changes_during_the_measurement_concludes_nothing():
    desk = Desk(FakeEngine(skill=SKILL))
    chat = desk.engine.chat

    async def drifting(body):
        desk.environment.names = ["win", "lose", "finish", "other"]
        return await chat(body)

    desk.engine.chat = drifting
    found = await desk.compare()
    assert (found.decision, "changed" in found.reason) == ("hold", True)


async def test_broken_episodes_are_left_out_and_too_many_of_them_conclude_nothing():
    desk = Desk(FakeEngine(skill=SKILL), batch=30)
    desk.environment.broken = {3}
    assert (await desk.compare()).measurements["tasks"] == 29
    desk.environment.broken = set(range(128, 140))
    with pytest.raises(DependencyUnavailable, match="broke down"):
        await desk.compare(2)


async def test_a_candidate_that_forgot_a_family_is_rejected_although_it_is_better_on_average(monkeypatch):
    found = await Desk(Specialist(), TwoFamilies(), tasks=128).compare()
    assert (found.decision, found.measurements["families_lost"]) == ("reject", 1)
    assert '"sell a thing"' in found.reason
    monkeypatch.setattr(suite, "_HEALTHY", 1.1)
    everything = await Desk(Specialist(), TwoFamilies()).compare()
    assert everything.decision != "reject", "the average alone does not show it"


async def test_what_is_measured_by_the_deadline_counts_and_only_whole_batches_do():
    engine = Lucky(skill={0: 0.5, 1: 0.5})
    engine.seconds = 1.0
    desk = Desk(engine, alpha=0.001, beta=0.001)
    found = await desk.compare(deadline=anyio.current_time() + 11.0)
    assert (found.decision, "out of time" in found.reason, found.measurements["out_of_time"]) == ("hold", True, 1)
    assert found.measurements["tasks"] in (16, 32, 48)
    assert engine.current == 1, "the candidate is back in the shadow engine"
    found = await desk.compare(2, deadline=-math.inf)
    assert (found.decision, found.measurements["looks"]) == ("hold", 0)


async def test_killed_after_each_batch_it_comes_to_the_same_verdict_on_the_same_tasks():
    skill = {0: 0.5, 1: 0.55}
    whole = await Desk(Lucky(skill=skill), max_tasks=64).compare()
    engine = Lucky(skill=skill)
    engine.seconds = 1.0
    desk, looks = Desk(engine, max_tasks=64), 0.0
    while looks < whole.measurements["looks"]:
        desk.trial = SandboxTrial(desk.settings, environment=desk.environment, engine=engine, store=desk.store)
        with anyio.move_on_after(1.5):  # killed, before a batch is played
            await desk.compare()
        found = await desk.compare(deadline=anyio.current_time() + 11.0)
        looks += found.measurements["looks"]
    assert (found.decision, found.reason) == (whole.decision, whole.reason)


async def test_of_all_versions_but_the_open_candidate_and_its_rivals_only_totals_are_kept():
    desk = Desk(Lucky(skill={0: 0.9} | dict.fromkeys(range(1, 8), 0.1)), max_tasks=16)
    for candidate in range(1, 8):
        await desk.compare(candidate)
    (data,) = desk.store.state.values()
    records = msgspec.msgpack.decode(data, type=Records)
    assert {version: len(tasks) for version, tasks in records.attempts.items()} == {7: 16, 0: 16}
    assert {version: tried for version, (_, tried) in records.totals.items()} == {0: 6 * 16 * 2}


def family(name: str, mine: float, theirs: float, tasks: int) -> Family:
    """`tasks` of a family, so many of them solved, in no order."""

    def drawn(rate: float, seed: str) -> list[float]:
        solved = [float(number < round(rate * tasks)) for number in range(tasks)]
        random.Random(name + seed).shuffle(solved)
        return solved

    return Family(name, list(zip(drawn(mine, "mine"), drawn(theirs, "theirs"), strict=True)))


@pytest.mark.parametrize(
    ("families", "decision", "says", "figures"),
    [
        ([("book", 1.0, 0.7, 60), ("cancel", 0.2, 0.9, 30)], "reject", '"cancel"', {"families_lost": 1}),
        ([("book", 0.8, 0.8, 10)], "hold", "not yet shown", {"families_healthy": 1}),
        ([("book", 0.9, 0.8, 100)], "promote", "", {"families_healthy": 1}),
        ([("book", 0.0, 0.4, 40)], "promote", "", {"families_healthy": 0}),
        ([("book", 0.0, 1.0, suite._LEAST - 1)], "promote", "", {"families_small": 1}),
        ([(str(n), 0.8, 0.8, 10 + n) for n in range(30)], "hold", "", {"families_unwatched": 30 - suite._MOST}),
    ],
    ids=["lost one, gained on average", "may have fallen", "kept", "never could do it", "too few", "the largest"],
)
def test_what_the_best_version_could_do_in_a_family_the_candidate_can_do_too(families, decision, says, figures):
    found = forgetting({name: family(name, *rest) for name, *rest in families}, 0.15)
    assert (found.decision, says in found.reason) == (decision, True), found.reason
    assert {name: found.measurements[name] for name in figures} == figures
    watched = sorted(families, key=lambda one: one[-1], reverse=True)[: suite._MOST]
    told = {name for name, *_ in families if f"family_{name}_tasks" in found.measurements}
    assert told == {name for name, *_, tasks in watched if tasks >= suite._LEAST}


def test_avg_is_the_mean_share_and_best_the_share_of_tasks_that_any_attempt_solved():
    found = summarize([[True, False, False, False], [False] * 4, [True] * 4, [True, True, False, False]])
    assert (found.average.estimate, found.best.estimate) == (pytest.approx((0.25 + 0 + 1 + 0.5) / 4), 0.75)
    assert (found.tasks, found.attempts) == (4, 16)
    nothing = summarize([])
    assert (nothing.average.low, nothing.average.high, nothing.best.low, nothing.best.high) == (0, 1, 0, 1)


def test_attempts_that_all_agree_are_no_more_evidence_than_one_a_task_and_independent_ones_are():
    def width(attempts: list[list[bool]]) -> float:
        average = summarize(attempts).average
        return average.high - average.low

    single = width([[bool(task % 2)] for task in range(40)])
    assert width([[bool(task % 2)] * 8 for task in range(40)]) == pytest.approx(single, rel=0.05)
    rng = random.Random(1)
    assert width([[rng.random() < 0.5 for _ in range(8)] for _ in range(40)]) < 0.15

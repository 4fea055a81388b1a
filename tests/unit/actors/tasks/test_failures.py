"""From failing production runs to tasks, on the travel desk and the real store."""

import json
from collections.abc import Sequence

import pytest
from sqlalchemy import select

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import cluster_of
from actors.kinds.levels import ENOUGH
from actors.messages import Attributed, Feedback, OutcomeChanged, Step, Task, ToolCall, Trajectory
from actors.store import Joined, Store
from actors.store.erasing import Selector
from actors.store.tables import TaskSources
from actors.system.actor import Received
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME
from actors.tasks import failures
from actors.tasks.failures import LiveFailures
from actors.tasks.reference_calls import SyntheticTaskSpec
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Variant
from adapters.environments.travel.environment import step
from tests.support.credited import attributed
from tests.warmstart.travel_oracle import good_actions

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of variants and of worlds that are looked at."""
    monkeypatch.setattr(failures, "_VARIANTS", 6)
    monkeypatch.setattr(failures, "_WORLDS", 64)


def run(key: str, family: str, *, good: bool, **fields) -> Attributed:
    """A production run of one desk, all good steps or a wrong end at once."""
    desk = Desk(f"prod-{key}", family, Variant.of(Drift()))
    steps: list[Step] = []
    while not desk.done:
        name, arguments = good_actions(desk)[0] if good else ("finish", {"answer": "done"})
        call = ToolCall(name, json.dumps(arguments))
        seen = step(desk, [call])
        observation = "" if seen.done else seen.text
        steps.append(Step(exchange_id=f"x-{key}-{len(steps)}", tool_calls=(call,), observation=observation))
    return attributed(key, **{"goal": desk.goal, "steps": tuple(steps), "outcome": float(good), **fields})


class Urged(Curriculum):
    """Knows the desk's own templates, and what it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.clusters: list[str] = []
        for family in "AB":
            for number in range(ENOUGH):
                goal = Desk(f"own-{number}", family, Variant.of(Drift())).goal
                self.levels.tell(attributed(f"{family}{number}", goal=goal).trajectory)

    def urge(self, cluster: str) -> None:
        self.clusters.append(cluster)


class Bench:
    """Failures of a desk; of its tasks the curriculum knows the families A and B."""

    def __init__(self, store: Store, exam: bool = False) -> None:
        self.store, self.urged, self.exam = store, Urged(), exam
        self.actor = self.make()

    def make(self, searcher=None, kinds: Curriculum | None = None) -> LiveFailures:
        return LiveFailures(
            store=self.store, environment=TravelDesk(), families=None, kinds=kinds or self.urged,
            searcher=searcher, exam=lambda key: self.exam,
        )  # fmt: skip

    async def see(self, *items: Attributed) -> None:
        await self.store.save(items)
        await self.actor.start()
        await self.actor.handle([Received(item.id, TRAJECTORY_ATTRIBUTED, item) for item in items])

    async def say(self, key: str, outcome: float) -> Sequence[OutcomeChanged]:
        said = Feedback(id=f"said-{key}", received=9_000.0, trajectory_id=key, outcome=outcome)
        return await self.store.save([said, Joined(id=said.id, trajectory_id=key, outcome=outcome)])

    async def hear(self, *changed: OutcomeChanged) -> None:
        """Beyond the ledger, which would let none of them through twice."""
        batch = [Received(f"{one.id}:{one.revision}", TRAJECTORY_OUTCOME, one) for one in changed]
        await self.store.save((await self.actor.handle(batch)).records)

    async def met(self, *items: Attributed) -> None:
        """It sees them, and does what it does about them."""
        await self.see(*items)
        await self.actor.tick()

    async def tasks(self):
        return [one.task for one in await self.store.task_states()]


async def outcome(task: Task, calls: list[ToolCall]) -> float | None:
    """Of making these calls, one a turn."""
    episode = await SyntheticTasks(TravelDesk()).reset(task)
    for call in calls:
        await episode.step([call], "")
    return await episode.evaluate()


async def test_a_kind_that_the_curriculum_knows_has_its_weight_raised(store: Store) -> None:
    bench = Bench(store)
    failing = [run(f"f{n}", "A", good=False) for n in range(3)]
    await bench.met(*failing)
    assert bench.urged.clusters == [cluster_of(failing[0].trajectory.goal)]
    assert await bench.tasks() == []
    assert bench.actor.counts == {"seen": 3, "urged": 3}
    await bench.actor.tick()
    assert len(bench.urged.clusters) == 1, "each failure is used once"


async def test_a_kind_that_the_environment_has_and_nobody_knows_becomes_its_own_tasks(store: Store) -> None:
    bench = Bench(store)
    bench.actor = bench.make(kinds=Curriculum())
    await bench.met(*[run(f"f{n}", "C", good=False) for n in range(3)])
    tasks = await bench.tasks()
    assert len(tasks) == 6
    assert {task.origin for task in tasks} == {"environment"}, "its own verifier judges them"
    assert {task.spec["family"] for task in tasks} == {"C"}
    made_from = await store.ask(lambda c: c.scalars(select(TaskSources.source).distinct()).all())
    assert sorted(made_from) == ["f0", "f1", "f2"]


async def test_a_kind_that_no_task_has_is_made_in_other_worlds_by_the_way_of_a_run_that_succeeded(store: Store) -> None:
    bench = Bench(store)
    await bench.met(*[run(f"f{n}", "D", good=False) for n in range(3)], run("won", "D", good=True))
    tasks = await bench.tasks()
    assert len({task.goal for task in tasks}) > 1
    assert all(task.origin == "production" and task.goal.startswith("Find a flight to:") for task in tasks)
    for task in tasks:
        spec = SyntheticTaskSpec.of(task)
        assert spec.made_from == ("f0", "f1", "f2", "won")
        assert task.goal.split("to:")[1].rstrip(".") in spec.base_goal, "its entities are those of its world"
        assert await outcome(task, [call.call(number) for number, call in enumerate(spec.reference)]) == 1.0
        assert await outcome(task, [ToolCall("finish", '{"answer": "done"}')]) == 0.0


async def test_failures_wait_for_a_success_and_are_given_up_when_none_comes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_PATIENCE", 3)
    bench = Bench(store)
    await bench.met(*[run(f"f{n}", "D", good=False) for n in range(3)])
    assert await bench.tasks() == []
    again = bench.make()
    await again.start()
    await store.save([run("won", "D", good=True)])
    await again.tick()
    assert len(await bench.tasks()) == 6, "what waited outlives a restart"
    await bench.see(*[run(f"g{n}", "L", good=False) for n in range(3)])
    for _ in range(3):
        await bench.actor.tick()
    assert bench.actor.counts["given_up"] == 3
    assert bench.actor.counts["no_way"] == 4


async def test_a_way_of_the_policys_own_is_searched_for_where_nobody_succeeded(store: Store) -> None:
    class Searcher:
        async def search(self, base, goal) -> Trajectory | None:
            return run("attempt", "D", good=True, source="sandbox").trajectory

    bench = Bench(store)
    bench.actor = bench.make(Searcher())
    await bench.met(*[run(f"f{n}", "D", good=False) for n in range(3)])
    tasks = await bench.tasks()
    assert len(tasks) == 6
    assert all(task.spec["made_from"] == ["f0", "f1", "f2"] for task in tasks)


@pytest.mark.promise
async def test_what_is_forgotten_is_no_failure_any_more_and_takes_its_tasks_along(store: Store) -> None:
    bench = Bench(store)
    await bench.met(*[run(f"f{n}", "D", good=False) for n in range(4)], run("won", "D", good=True))
    assert await bench.tasks()
    for name in ("f1", "g0"):
        selector = Selector(trajectories=(name,))
        await bench.see(*[run(f"g{n}", "D", good=False) for n in range(3)])
        scope = await store.find(selector)
        await store.tombstone(selector, scope)
        await store.erase(scope)
    assert await bench.tasks() == []
    await bench.actor.tick()
    assert bench.actor.counts["gone"] == 1
    assert await bench.tasks() == [], "two are left, too few"


async def test_a_failure_that_is_told_late_becomes_a_task_as_a_prompt_one_does(store: Store) -> None:
    bench = Bench(store)
    runs = [run(f"f{n}", "A", good=False, outcome=None) for n in range(3)]
    await bench.see(*runs)
    bench.actor = bench.make()
    await bench.actor.start()
    changed = [one for run in runs for one in await bench.say(run.id, 0.0)]
    await bench.hear(*changed)
    await bench.actor.tick()
    assert bench.urged.clusters == [cluster_of(runs[0].trajectory.goal)]
    bench.actor = bench.make()
    await bench.actor.start()
    await bench.hear(*changed)
    await bench.actor.tick()
    assert len(bench.urged.clusters) == 1, "each failure is used once, also after a restart"


async def test_a_failure_that_is_corrected_to_a_success_is_none_any_more(store: Store) -> None:
    bench = Bench(store)
    await bench.see(*failing(3, family="A"), run("l", "L", good=False))
    for key in ("f0", "l"):
        await bench.hear(*await bench.say(key, 1.0))
    await bench.actor.tick()
    assert bench.actor.counts == {"seen": 4, "retracted": 2}, "two are left, too few"
    await bench.met(run("f3", "A", good=False))
    assert bench.actor.counts["urged"] == 3


SAID = ("Look for a flight to:{} please", "is there any flight to:{} to be had", "I need to find some flight to:{}")
"""As nobody at the desk asks."""


def said(number: int, **fields) -> Attributed:
    """A failure at a request in free words."""
    one = run(f"s{number}", "D", good=False).trajectory
    city = one.goal.split("to:")[1].rstrip(".")
    return attributed(f"s{number}", **{"goal": SAID[number].format(city), "steps": one.steps, "outcome": 0.0, **fields})


def failing(count: int = 3, family: str = "D", **fields) -> list[Attributed]:
    return [run(f"f{n}", family, good=False, **fields) for n in range(count)]


def lucky() -> Attributed:
    """A success that began with a call that no other world answers."""
    won = run("won", "D", good=True).trajectory
    made_up = ToolCall("book", won.steps[0].tool_calls[0].arguments)
    first = Step(exchange_id="y", tool_calls=(made_up,), observation="{}")
    return attributed("won", goal=won.goal, steps=(first, *won.steps), outcome=1.0)


NO_TASK = {
    "the only success is another tenant's": lambda: [*failing(), run("won", "D", good=True, tenant="other")],
    "two failures and one at something else": lambda: [
        said(0), said(1), run("b", "L", good=False), *[run(f"won{n}", "D", good=True) for n in range(2)]
    ],
    "a way that a world refuses": lambda: [*failing(), lucky()],
}  # fmt: skip


@pytest.mark.parametrize("items", NO_TASK.values(), ids=NO_TASK)
async def test_no_task_is_made_where(store: Store, items) -> None:
    bench = Bench(store)
    await bench.met(*items())
    assert await bench.tasks() == []


CIRCLES = (Step(exchange_id="x", tool_calls=(ToolCall("weather", "{}"),), observation='{"sky": "sun"}'),)
COUNTED = {
    "what no world has": (lambda: failing(goal='Order "Salami" for lunch.'), False, {"seen": 3, "no_world": 1}),
    "in other words what the sandbox plays": (
        lambda: [failing(goal=f"{'so ' * n}book a flight to:Oslo for:Mia.")[n] for n in range(3)],
        False, {"seen": 3, "no_way": 3, "urged": 3},
    ),
    "held out": (lambda: failing(family="C"), True, {"held_out": 3}),
    "successes and the sandbox's own": (
        lambda: [run("a", "C", good=True), *failing(1, source="sandbox")], False, {},
    ),
    "in circles without an outcome": (
        lambda: [attributed("loop", steps=CIRCLES * 6, outcome=None), attributed("calm", steps=CIRCLES, outcome=None)],
        False, {"seen": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("items", "exam", "counts"), COUNTED.values(), ids=COUNTED)
async def test_what_counts_as_a_failure(store: Store, items, exam: bool, counts: dict[str, int]) -> None:
    bench = Bench(store, exam=exam)
    await bench.met(*items())
    assert bench.actor.counts == counts


async def test_three_failures_that_mean_the_same_become_tasks_each_a_request_as_it_was_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_VARIANTS", 40)
    bench = Bench(store)
    won = [run(f"won{n}", "D", good=True) for n in range(2)]
    await bench.met(*(said(n) for n in range(3)), *won)
    tasks = await bench.tasks()
    asked = {task.goal.split("to:")[0] for task in tasks}
    assert asked == {one.split("to:")[0] for one in SAID}, "every one of them, in the words that somebody used"
    for task in tasks:
        spec = SyntheticTaskSpec.of(task)
        assert set(spec.made_from) == {"s0", "s1", "s2", "won0", "won1"}
        assert spec.reference[0].arguments == {"to": task.goal.split("to:")[1].split()[0]}
        assert await outcome(task, [call.call(number) for number, call in enumerate(spec.reference)]) == 1.0
    assert bench.actor.counts["made"] == 3


async def test_a_party_that_fails_at_everything_crowds_out_its_own_failures(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_KINDS", 9)
    bench = Bench(store)
    quiet = [said(n, caller="quiet") for n in range(2)]
    odd = [attributed(f"o{n}", caller="loud", goal=f"{chr(97 + n)}zq {chr(97 + n)}wv", outcome=0.0) for n in range(20)]
    await bench.see(*quiet, *odd)
    await bench.met(said(2), run("won0", "D", good=True), run("won1", "D", good=True))
    assert len(await bench.tasks()) == 6

"""The experiencer on the real store, the real desk and the real prober: lessons come, prove themselves, and go."""

import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from actors.experience import lesson_ab_test
from actors.experience.experiencer import REVISE_SECONDS, Experiencer, ExperiencerSettings
from actors.experience.inquiry import ROUNDS
from actors.experience.lesson_ab_test import Tally, TrialSettings, next_state
from actors.experience.probing import Prober
from actors.experience.probing_round import ProbeSettings
from actors.messages import Attributed, Attribution, Directive, Experience, Message, Trajectory
from actors.ports.environments import Episode
from actors.rollout.errors import EpisodeLost
from actors.store import Store
from actors.system.actor import Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import EXPERIENCE_LESSON, TRAJECTORY_CLOSED
from adapters.environments.travel import Drift, TravelDesk
from tests.support.travelling import Clerk, plays

pytestmark = pytest.mark.anyio

CHECK = "before_cancel:check_policy then cancel:cancel"
SEARCH = "search then book:book"
BUY = "search then book:buy"
RENAMED = {"cause": "tools", "tenant": "default", "missing": "book", "new": "buy"}


class World:
    """An experiencer with all that it works on, and a clock that tests turn."""

    def __init__(self, store: Store, desk: Path, sandbox: bool = True) -> None:
        self.store, self.desk, self.sandbox = store, desk, sandbox
        self.now = 1000.0
        self.clerk: Clerk | Broken = Clerk(random.Random(3))
        self.emitted: list[Experience] = []
        self.actor = self.build()

    def build(self) -> Experiencer:
        prober = Prober(ProbeSettings(), environment=TravelDesk(self.desk), player=self.play, clock=lambda: self.now)
        return Experiencer(
            ExperiencerSettings(),
            store=self.store,
            prober=prober if self.sandbox else None,
            clock=lambda: self.now,
        )

    async def play(self, episode: Episode, seed: int) -> None:
        await self.clerk(episode, seed)

    async def see(self, *messages: Message) -> Result:
        return await self._commit(await self.actor.handle([Received(m.id, "", m) for m in messages]))

    async def tick(self, seconds: float = 0.0) -> Result:
        self.now += seconds
        return await self._commit(await self.actor.tick())

    async def _commit(self, result: Result) -> Result:
        await self.store.save(list(result.records))
        self.emitted += [m for m in result.records if isinstance(m, Experience)]
        return result

    async def restart(self) -> None:
        self.actor = self.build()
        await self.actor.start()

    async def lessons(self) -> dict[str, str]:
        return {lesson.content: lesson.state for lesson in await self.store.experiences()}

    async def lesson(self, content: str) -> Experience:
        return next(lesson for lesson in await self.store.experiences() if lesson.content == content)

    async def drift(self, drift: Drift, id: str = "drift-1", **details: str) -> Result:
        drift.write(self.desk)
        return await self.see(
            Directive(id=id, kind="drift", reason="", origin="sentinel", details={**RENAMED, **details})
        )

    async def rollouts(self, lesson: Experience | None, *outcomes: float, goal: str = "Book a flight.") -> Result:
        """Sandbox rollouts, guided by `lesson` or by none."""
        return await self.see(*[
            attributed(
                Trajectory(
                    id=f"roll-{self.now}-{lesson and lesson.id}-{n}", source="sandbox", goal=goal, steps=(),
                    outcome=outcome, started=self.now, ended=self.now,
                    experience_ids=(lesson.id,) if lesson is not None else (),
                )
            )
            for n, outcome in enumerate(outcomes)
        ])  # fmt: skip


class Broken:
    async def __call__(self, episode: Episode, seed: int) -> None:
        raise EpisodeLost("engine_unavailable", "gone")


def attributed(run: Trajectory) -> Attributed:
    return Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=(), judge="rules", rubric="1"))


def history(count: int = 120, **fields: object) -> list[Attributed]:
    return [attributed(played.trajectory) for played in plays(count, **fields)]


@pytest.fixture
async def world(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for name, value in {"MIN_TRIALS": 8, "RETIRE_TRIALS": 8, "MAX_TRIALS": 16, "RETIRE_HIGH": 1.0}.items():
        monkeypatch.setattr(lesson_ab_test, name, value)
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    world = World(store, tmp_path / "desk.json")
    await world.actor.start()
    yield world
    await store.aclose()


async def test_traffic_gives_candidates(world: World):
    result = await world.see(*history())
    assert await world.lessons() == {CHECK: "candidate", SEARCH: "candidate"}
    assert {output.subject for output in result.outputs} == {EXPERIENCE_LESSON}
    assert [lesson.revision for lesson in world.emitted] == [0, 0]
    assert all(lesson.sources for lesson in world.emitted)


async def test_the_same_traffic_again_says_nothing_new(world: World):
    await world.see(*history())
    await world.see(*history())
    await world.tick(1000)
    assert len(world.emitted) == 2


async def test_tenants_have_lessons_of_their_own(world: World):
    await world.see(*history(tenant="acme"), *history(10, seed=1, tenant="other"))
    assert {lesson.tenant for lesson in world.emitted} <= {"acme", "other"}
    acme = [lesson.id for lesson in world.emitted if lesson.tenant == "acme"]
    other = [lesson.id for lesson in world.emitted if lesson.tenant == "other"]
    assert len(acme) == 2
    assert not set(acme) & set(other)


async def test_a_candidate_that_helps_becomes_active_and_then_is_learnt(world: World):
    await world.see(*history())
    search = await world.lesson(SEARCH)
    world.now += 100
    await world.rollouts(search, *[1.0] * 8)
    await world.rollouts(None, *[0.0] * 8)
    active = await world.lesson(SEARCH)
    assert (active.state, active.revision, active.guided, active.unguided) == ("active", 1, (8, 8), (8, 0))
    world.now += 100
    await world.rollouts(search, *[1.0] * 8)
    await world.rollouts(None, *[1.0] * 8)
    assert (await world.lesson(SEARCH)).state == "retired"


async def test_a_candidate_that_does_not_help_is_retired(world: World):
    await world.see(*history())
    search = await world.lesson(SEARCH)
    world.now += 100
    await world.rollouts(search, *[1.0, 0.0] * 8)
    await world.rollouts(None, *[1.0, 0.0] * 8)
    assert (await world.lesson(SEARCH)).state == "retired"


async def test_trials_on_other_goals_say_nothing(world: World):
    await world.see(*history())
    search = await world.lesson(SEARCH)
    world.now += 100
    await world.rollouts(search, *[1.0] * 8, goal="Cancel the order.")
    await world.rollouts(None, *[0.0] * 8, goal="Cancel the order.")
    assert (await world.lesson(SEARCH)).state == "candidate"


async def test_revisions_that_follow_from_trials_keep_their_distance(world: World):
    await world.see(*history())
    search = await world.lesson(SEARCH)
    world.now += 1
    await world.rollouts(search, *[1.0] * 8)
    await world.rollouts(None, *[0.0] * 8)
    assert (await world.lesson(SEARCH)).state == "candidate"
    await world.tick(REVISE_SECONDS)
    assert (await world.lesson(SEARCH)).state == "active"


async def test_a_rename_makes_the_old_lesson_void_and_the_new_one_active(world: World):
    await world.see(*history())
    result = await world.drift(Drift(rename={"book": "buy"}))
    assert await world.lessons() == {CHECK: "candidate", SEARCH: "retired", BUY: "active"}
    lesson = await world.lesson(BUY)
    assert (lesson.when_to_use, lesson.kind, lesson.tenant) == ("book", "rename", "default")
    probes = [output.message for output in result.outputs if output.subject == TRAJECTORY_CLOSED]
    assert probes
    assert {probe.source for probe in probes if isinstance(probe, Trajectory)} == {"probe"}
    assert set(lesson.sources) <= {probe.id for probe in probes}


@pytest.mark.parametrize(
    ("drift", "content"),
    [
        (Drift(precondition={"book": "hold"}), "before_book:hold then book:book"),
        (Drift(rename={"cancel": "drop"}), "before_cancel:check_policy then cancel:drop"),
        (Drift(rename={"book": "buy"}, precondition={"book": "hold"}), "before_book:hold then book:buy"),
    ],
)
async def test_other_drifts_give_their_lessons(world: World, drift: Drift, content: str):
    await world.drift(drift)
    assert (await world.lessons())[content] == "active"


async def test_a_second_rename_keeps_the_word_that_goals_use(world: World):
    await world.drift(Drift(rename={"book": "buy"}))

    class Trained(Clerk):
        """Has learnt the first rename."""

        async def __call__(self, episode: Episode, seed: int) -> None:
            await super().__call__(Renaming(episode), seed)

    class Renaming:
        def __init__(self, inner: Episode) -> None:
            self.inner, self.messages, self.tools = inner, inner.messages, inner.tools

        async def step(self, calls: Sequence[object], text: str) -> object:
            renamed = [msgspec.structs.replace(c, name="buy") if c.name == "book" else c for c in calls]  # type: ignore
            return await self.inner.step(renamed, text)

        async def evaluate(self) -> float:
            return await self.inner.evaluate()

    world.clerk = Trained(random.Random(0))
    world.now += 1000
    await world.drift(Drift(rename={"book": "take"}), id="drift-2")
    lessons = await world.lessons()
    assert (lessons[BUY], lessons["search then book:take"]) == ("retired", "active")
    assert (await world.lesson("search then book:take")).when_to_use == "book"


async def test_a_tool_that_gets_its_old_name_back_gets_its_old_lesson_back(world: World):
    await world.see(*history())
    await world.drift(Drift(rename={"book": "buy"}))
    world.now += 1000
    # The policy has not learnt the new name yet, so nothing is refused: contrast has to say it again.
    await world.drift(Drift(), id="drift-2", missing="buy", new="book")
    assert (await world.lessons())[BUY] == "retired"
    await world.see(*history(seed=5))
    assert (await world.lessons())[SEARCH] == "candidate"


async def test_a_second_report_of_the_same_drift_is_not_probed(world: World):
    await world.drift(Drift(rename={"book": "buy"}))
    again = await world.drift(Drift(rename={"book": "buy"}), id="drift-2", cause="errors")
    assert (list(again.records), list(again.outputs)) == ([], [])


async def test_a_directive_that_comes_again_after_a_crash_gives_the_same_lessons(world: World):
    drift = Drift(rename={"book": "buy"})
    drift.write(world.desk)
    directive = Directive(id="drift-1", kind="drift", reason="", origin="sentinel", details=RENAMED)
    lost = await world.actor.handle([Received("drift-1", "", directive)])
    await world.restart()
    again = await world.see(directive)
    assert {record.id for record in lost.records} == {record.id for record in again.records}
    assert (await world.lessons())[BUY] == "active"


async def test_an_engine_that_is_away_is_waited_for(world: World):
    world.clerk = Broken()
    with pytest.raises(DependencyUnavailable, match="gone"):
        await world.drift(Drift(rename={"book": "buy"}))
    world.clerk = Clerk(random.Random(0))
    await world.restart()
    await world.drift(Drift(rename={"book": "buy"}))
    assert (await world.lessons())[BUY] == "active"


async def test_a_round_that_finds_nothing_is_repeated_a_few_times(world: World):
    world.clerk = Clerk(random.Random(0), blind=1.0)
    await world.drift(Drift(rename={"book": "buy"}))
    assert BUY not in await world.lessons()
    assert list((await world.tick(1)).outputs) == []
    rounds = 1
    while (await world.tick(61)).outputs:
        rounds += 1
    assert rounds == ROUNDS
    assert BUY not in await world.lessons()


async def test_a_later_round_succeeds_once_the_policy_gets_there(world: World):
    world.clerk = Clerk(random.Random(0), blind=1.0)
    await world.drift(Drift(rename={"book": "buy"}))
    await world.restart()  # what is due survives, as do the tools of before
    await world.drift(Drift(rename={"book": "buy"}))
    world.clerk = Clerk(random.Random(0))
    await world.tick(61)
    assert (await world.lessons())[BUY] == "active"


async def test_state_survives_a_restart(world: World):
    await world.see(*history())
    await world.restart()
    assert await world.lessons() == {CHECK: "candidate", SEARCH: "candidate"}
    search = await world.lesson(SEARCH)
    world.now += 100
    await world.rollouts(search, *[1.0] * 8)
    await world.rollouts(None, *[0.0] * 8)
    assert (await world.lesson(SEARCH)).revision == 1


async def test_without_a_sandbox_lessons_about_missing_tools_are_retired(world: World):
    world.sandbox = False
    await world.restart()
    await world.see(*history())
    await world.drift(Drift(rename={"book": "buy"}))
    assert await world.lessons() == {CHECK: "candidate", SEARCH: "retired"}


def lesson(state: str) -> Experience:
    return Experience(id="l", when_to_use="book", content=SEARCH, state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "guided", "unguided", "after"),
    [
        ("candidate", (24, 20), (24, 10), "active"),
        ("candidate", (23, 23), (24, 0), "candidate"),
        ("candidate", (96, 50), (96, 50), "retired"),
        ("candidate", (96, 50), (0, 0), "candidate"),
        ("active", (48, 45), (48, 45), "retired"),
        ("active", (48, 45), (48, 20), "active"),
        ("active", (48, 24), (48, 24), "active"),
        ("active", (47, 45), (48, 45), "active"),
        ("active", (12, 1), (12, 11), "retired"),
        ("candidate", (12, 1), (12, 11), "retired"),
        ("candidate", (40, 0), (40, 0), "retired"),
        ("quarantined", (96, 96), (96, 0), "quarantined"),
        ("retired", (96, 96), (96, 0), "retired"),
    ],
)
def test_states_follow_from_trials(state: str, guided: tuple[int, int], unguided: tuple[int, int], after: str):
    assert next_state(lesson(state), Tally(guided, unguided), TrialSettings()).state == after

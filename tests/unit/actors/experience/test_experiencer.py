"""The experiencer on the real store, the real desk and the real prober: lessons come, prove themselves, and go."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from actors.experience import experiencer, lesson_ab_test
from actors.experience.experiencer import REVISE_SECONDS
from actors.experience.inquiry import ROUNDS
from actors.experience.lesson_ab_test import Tally, next_state
from actors.experience.skill_trials import SkillReplayer
from actors.kinds.holdout import held_out
from actors.messages import Experience, Serving, Trajectory
from actors.ports.environments import Episode
from actors.rollout.errors import EpisodeLost
from actors.system.actor import Received
from actors.system.errors import DependencyUnavailable
from actors.system.streams import EXPERIENCE_LESSON, TRAJECTORY_CLOSED
from adapters.environments.travel import Drift, TravelDesk
from daemon.collectors.parts import OTHERS, experience_figures
from tests.support.invented_worlds import WORLDS, desk
from tests.support.invented_worlds import traffic as invented
from tests.support.travelling import Clerk
from tests.unit.actors.experience.made import World, drifted, lesson, rollout, traffic

pytestmark = pytest.mark.anyio
CHECK = "before_cancel:check_policy then cancel:cancel"
SEARCH = "search then book:book"
BUY = "search then book:buy"
RENAMED = Drift(rename={"book": "buy"})


async def test_traffic_gives_candidates_once(world: World):
    result = await world.see(*traffic())
    assert await world.states() == {CHECK: "candidate", SEARCH: "candidate"}
    assert {output.subject for output in result.outputs} == {EXPERIENCE_LESSON}
    assert all(one.sources and one.revision == 0 for one in world.emitted)
    await world.see(*traffic())
    await world.tick(1000)
    assert len(world.emitted) == 2


async def test_tenants_have_lessons_of_their_own(world: World):
    await world.see(*traffic(tenant="acme"), *traffic(120, seed=1, tenant="other"))
    ids = {tenant: {one.id for one in world.emitted if one.tenant == tenant} for tenant in ("acme", "other")}
    assert len(ids["acme"]) == len(ids["other"]) == 2
    assert not ids["acme"] & ids["other"]


async def tried(world: World, guided: Sequence[float], unguided: Sequence[float], goal: str = "Book a flight.") -> None:
    """Sandbox rollouts with the lesson about searching, and without."""
    search = await world.lesson(SEARCH)
    for ids, outcomes in (((search.id,), guided), ((), unguided)):
        names = [f"roll-{world.now}-{bool(ids)}-{n}" for n in range(len(outcomes))]
        told = zip(names, outcomes, strict=True)
        await world.see(*[rollout(name, goal, world.now, outcome, ids) for name, outcome in told])


async def test_a_candidate_that_helps_becomes_active_and_then_is_learnt(world: World, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"MIN_TRIALS": 8, "RETIRE_TRIALS": 8, "MAX_TRIALS": 16, "RETIRE_HIGH": 1.0}.items():
        monkeypatch.setattr(lesson_ab_test, name, value)
    await world.see(*traffic())
    world.now += 100
    await tried(world, [1.0] * 8, [0.0] * 8, goal="Cancel the order.")
    assert (await world.lesson(SEARCH)).state == "candidate", "trials on other goals say nothing"
    world.now += 1
    await tried(world, [1.0] * 8, [0.0] * 8)
    active = await world.lesson(SEARCH)
    assert (active.state, active.revision, active.guided, active.unguided) == ("active", 1, (8, 8), (8, 0))
    world.now += 1
    await tried(world, [1.0] * 8, [1.0] * 8)
    assert (await world.lesson(SEARCH)).state == "active", "revisions that follow from trials keep their distance"
    await world.tick(REVISE_SECONDS)
    assert (await world.lesson(SEARCH)).state == "retired"


async def test_a_rename_makes_the_old_lesson_void_and_the_new_one_active(world: World):
    await world.see(*traffic())
    result = await world.drift(RENAMED)
    assert await world.states() == {CHECK: "candidate", SEARCH: "retired", BUY: "active"}
    found = await world.lesson(BUY)
    assert (found.when_to_use, found.kind, found.tenant) == ("book", "rename", "default")
    probes = [output.message for output in result.outputs if output.subject == TRAJECTORY_CLOSED]
    assert {probe.source for probe in probes if isinstance(probe, Trajectory)} == {"probe"}
    assert set(found.sources) <= {probe.id for probe in probes}
    again = await world.drift(RENAMED, id="drift-2", cause="errors")
    assert (list(again.records), list(again.outputs)) == ([], []), "the same drift is not probed twice"


async def test_a_second_rename_keeps_the_word_that_goals_use(world: World):
    await world.drift(RENAMED)
    world.player = Clerk(random.Random(0), knows={"book": "buy"})
    world.now += 1000
    await world.drift(Drift(rename={"book": "take"}), id="drift-2")
    states = await world.states()
    assert (states[BUY], states["search then book:take"]) == ("retired", "active")
    assert (await world.lesson("search then book:take")).when_to_use == "book"


async def broken(episode: Episode, seed: int) -> None:
    raise EpisodeLost("engine_unavailable", "gone")


@pytest.mark.parametrize("first", ["dies before it has committed", "its engine is away", "its policy finds nothing"])
async def test_what_a_first_round_does_not_find_out_the_next_does_after_a_restart(world: World, first: str):
    known = world.player
    RENAMED.write(world.desk)
    if first == "dies before it has committed":
        lost = await world.actor.handle([Received("drift-1", "", drifted())])
    elif first == "its engine is away":
        world.player = broken
        with pytest.raises(DependencyUnavailable, match="gone"):
            await world.hear(drifted())
    else:
        world.player = Clerk(random.Random(0), blind=1.0)
        await world.hear(drifted())
    assert BUY not in await world.states()
    await world.begin()
    if first == "its policy finds nothing":
        await world.hear(drifted())
    world.player = known
    again = await (world.tick(61) if first == "its policy finds nothing" else world.hear(drifted()))
    assert (await world.states())[BUY] == "active"
    if first == "dies before it has committed":
        assert {record.id for record in lost.records} == {record.id for record in again.records}
        assert [output.message for output in lost.outputs] == [output.message for output in again.outputs]


async def test_a_round_that_finds_nothing_is_repeated_a_few_times(world: World):
    world.player = Clerk(random.Random(0), blind=1.0)
    await world.drift(RENAMED)
    assert list((await world.tick(1)).outputs) == []
    rounds = 1
    while (await world.tick(61)).outputs:
        rounds += 1
    assert rounds == ROUNDS
    assert BUY not in await world.states()


async def test_without_a_sandbox_lessons_about_missing_tools_are_retired(world: World):
    await world.begin(sandbox=False)
    await world.see(*traffic())
    await world.drift(RENAMED)
    assert await world.states() == {CHECK: "candidate", SEARCH: "retired"}


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
    assert next_state(lesson("l", state=state), Tally(guided, unguided)).state == after


async def test_what_one_of_several_keys_shows_is_quarantined_until_another_shows_it(world: World):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(120, "key-1"))
    found = await world.lesson(CHECK)
    assert (found.state, found.reason) == ("quarantined", "1 of 2 independent sources")
    await world.see(*traffic(120, "key-2", seed=1))
    found = await world.lesson(CHECK)
    assert (found.state, found.reason, found.independent, found.revision) == ("candidate", "", 2, 1)


async def test_a_tenant_remembers_across_a_restart_that_it_has_several_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(1, "key-1", seed=8))
    await world.tick()
    monkeypatch.setattr(experiencer, "_WINDOW", 120)
    await world.begin()
    await world.see(*traffic(140, "key-1"))
    assert (await world.lesson(CHECK)).state == "quarantined"


async def test_held_out_tasks_never_become_sources(world: World):
    await world.see(*traffic(400))
    sources = {source for one in await world.store.experiences() for source in one.sources}
    assert sources
    assert not any(map(held_out, sources))
    assert world.actor.counts["held_out"] == sum(held_out(f"run-0-{n}") for n in range(400)) > 0


@pytest.mark.parametrize("sandbox", [False, True])
async def test_later_traffic_confirms_a_candidate_where_there_is_no_sandbox(world: World, sandbox: bool):
    await world.begin(sandbox)
    await world.see(*traffic(seed=1))
    assert (await world.lesson(CHECK)).state == "candidate"
    world.now += 10.0
    later = [msgspec.structs.replace(run, ended=world.now + 1.0) for run in traffic(500, seed=2)]
    await world.see(*later)
    await world.see(*later[:1])
    found = await world.lesson(CHECK)
    confirmed = ("active", "confirmed by later traffic")
    assert (found.state, found.reason) == (("candidate", "") if sandbox else confirmed)


async def test_skills_and_tool_memories_are_drawn_where_that_is_asked_for(world: World):
    await world.begin(sandbox=False)
    await world.see(*traffic(200))
    assert await world.of_kind("skill") == await world.of_kind("tool") == []
    await world.begin(draw=("skills", "tools"))
    await world.see(*traffic(200, seed=1))
    assert {one.state for one in await world.of_kind("skill")} == {"candidate"}
    memories = {one.when_to_use: one for one in await world.of_kind("tool")}
    assert {(one.state, one.origin) for one in memories.values()} == {("active", "calls")}
    assert memories["cancel"].detail["errors"] > 0


async def test_a_skill_becomes_active_by_its_replay_and_is_tried_again_after_a_drift(world: World):
    splits: list[str] = []

    class Watched(TravelDesk):
        def sample(self, seed, split, families):
            splits.append(split)
            return super().sample(seed, split, families)

    await world.begin(draw=("skills",))
    await world.see(*traffic(200))
    await world.tick(times=10)
    before = {one.content: one.state for one in await world.of_kind("skill")}
    assert await SkillReplayer(Watched(world.desk)).test((await world.of_kind("skill"))[0]) is not None
    assert set(splits) == {"train"}, "skills are tried on training tasks alone"
    await world.drift(Drift(precondition={"book": "hold"}), cause="errors", missing="quote", new="hold")
    await world.tick(times=10)
    after = {one.content: (one.state, one.reason) for one in await world.of_kind("skill")}
    booking = [after[content] for content, state in before.items() if state == "active" and "book(" in content]
    assert booking
    assert set(booking) == {("retired", "its replay failed")}


async def test_after_a_swap_the_weights_are_asked_without_the_lesson(world: World):
    await world.see(*traffic())
    known = msgspec.structs.replace(await world.lesson(CHECK), state="active", revision=5, updated=900.0)
    await world.store.save([known])
    await world.begin()
    await world.hear(Serving(id="s", engine="e", version=7, previous=6, path="", result="swapped", since=world.now))
    world.now += 100.0
    shown = [(), (known.id,)] * 48
    await world.see(*[rollout(f"r{n}", "Cancel the order.", world.now, 1.0, ids, 7) for n, ids in enumerate(shown)])
    after = await world.lesson(CHECK)
    assert (after.state, after.reason, after.detail) == ("retired", "internalised", {"internalised_at": 7})


async def test_metrics_tell_what_is_in_the_pool(world: World):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(120, "key-1"))
    await world.store.save(
        [Experience(id=f"i{n}", tenant=f"tenant-{n}", when_to_use="book", content="x") for n in range(70)]
    )
    await world.tick()
    found = {metric.name: metric for metric in experience_figures(world.actor)}
    lessons = {tuple(sample.labels.values()): sample.value for sample in found["evolved_experience_lessons"].samples}
    assert lessons["default", "precondition", "quarantined"] == 1
    assert lessons[OTHERS, "practice", "candidate"] == 7
    assert "held_out" in {sample.labels["what"] for sample in found["evolved_experience_events"].samples}


async def anywhere(world: World, *runs: Trajectory) -> list[Experience]:
    """Lessons from runs of worlds that nobody prepared for, 24 at a time."""
    world.exam = lambda key: False
    await world.begin(sandbox=False)
    for at in range(0, len(runs), 24):
        await world.see(*runs[at : at + 24])
    return await world.store.experiences()


async def test_three_agents_of_one_tenant_each_show_what_their_tools_need_without_a_sandbox(world: World):
    told = {one.content for one in await anywhere(world, *desk(0, 192, 0.05)) if one.state != "retired"}
    assert {
        "before create_refund always call check_policy with the same order",
        "before orders.cancel always call orders.hold with the same order",
        "before resetPassword always call verifyUser with the same user",
        "before closeAccount always call verifyUser with the same user",
    } <= told


async def test_a_lesson_that_is_drawn_again_is_the_same_lesson_whatever_words_goals_share_by_then(world: World):
    crm = next(one for one in WORLDS if one.name == "crm, German")
    found = await anywhere(world, *(run for seed in range(6) for run in invented(crm, seed, noise=0.05)))
    contents = [one.content for one in found]
    assert len(contents) == len(set(contents))
    assert any("vertragEntsperren" in content for content in contents)

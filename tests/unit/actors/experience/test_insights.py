"""Lessons from a language model, in the experiencer, on the real store: candidates at most, and merged."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from actors.experience import opinions
from actors.experience.forgetting import forget
from actors.messages import Trajectory
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Insight
from actors.store.erasing import Scope, Selector
from tests.support.travelling import play
from tests.unit.actors.experience.made import World, lesson, traffic
from tests.unit.actors.kinds.test_levels import ASKED

pytestmark = pytest.mark.anyio
ADVICE = Insight("cancelling an order", "Ask for the policy before you cancel the order.")
LIKE = Insight("cancelling an order", "Ask for the policy before you cancel an order.")


class Scripted:
    """An extractor that says what it is told."""

    name = "llm:test"

    def __init__(self) -> None:
        self.lessons: tuple[Insight, ...] = (ADVICE,)
        self.away = False
        self.shown: list[list[Trajectory]] = []

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        if self.away:
            raise ModelUnavailable("away")
        self.shown.append([*successes, *failures])
        return self.lessons


@pytest.fixture
async def model(world: World, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(opinions, "_EVERY", 10.0)
    monkeypatch.setattr(opinions, "_FRESH", 4)
    world.extractor = model = Scripted()
    world.exam = lambda key: False
    monkeypatch.setattr("actors.experience.experiencer._CONTRAST_EVERY", 100_000)
    await world.begin(sandbox=False)
    return model


def cancels(count: int, name: str, **fields: object) -> list[Trajectory]:
    rng = random.Random(name)
    return [play(rng, "B", id=f"{name}-{n}", **fields).trajectory for n in range(count)]


async def seen(world: World, count: int, name: str, ticks: int = 2, **fields: object) -> list[Trajectory]:
    """Runs that cancel; then questions."""
    runs = cancels(count, name, **fields)
    await world.see(*runs)
    await world.tick(30.0, times=ticks)
    return runs


async def test_an_insight_is_a_candidate_and_a_like_one_brings_it_sources(world: World, model: Scripted):
    await seen(world, 8, "a", ticks=3)
    assert len(model.shown) == 1, "not asked again without news"
    (found,) = await world.of_kind("insight")
    assert (found.state, found.origin, found.when_to_use) == ("candidate", "llm:test", "cancelling an order")
    assert set(found.sources) == {run.id for run in model.shown[0]}
    assert found.independent == len(found.sources)
    model.lessons = (LIKE,)
    await seen(world, 8, "b")
    (found,) = await world.of_kind("insight")
    assert found.content == ADVICE.content
    assert {source.split("-")[0] for source in found.sources} == {"a", "b"}
    assert (len(model.shown), world.actor.counts["merged"]) == (2, 1)


async def test_with_several_keys_one_key_is_shown_at_a_time_and_its_lesson_waits_for_another_key(
    world: World, model: Scripted
):
    await seen(world, 1, "x", ticks=0, caller="key-2")
    await seen(world, 8, "a", caller="key-1")
    assert {run.caller for run in model.shown[0]} == {"key-1"}
    (found,) = await world.of_kind("insight")
    assert (found.state, found.reason) == ("quarantined", "1 of 2 independent sources")
    model.lessons = (LIKE,)
    await seen(world, 8, "b", caller="key-1")
    assert (await world.of_kind("insight"))[0].state == "quarantined", "the same key again makes it no truer"
    await seen(world, 8, "c", caller="key-2")
    (found,) = await world.of_kind("insight")
    assert (found.state, found.independent, found.reason) == ("candidate", 2, "")


async def test_one_of_four_parties_has_a_third_of_the_room_for_lessons_and_no_more(
    world: World, model: Scripted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("actors.experience.experiencer._MAX_LESSONS", 9)
    await world.begin()
    for other in "bcd":
        runs = cancels(4, other, caller=f"key-{other}")
        await world.see(*(msgspec.structs.replace(run, outcome=None) for run in runs))
    words = ["apple", "bridge", "candle", "desert", "engine", "forest", "garden", "harbour", "island", "jungle"]
    for number, word in enumerate(words):
        model.lessons = (Insight(f"{word} {word}", f"{word} {word} {word} first"),)
        await seen(world, 6, f"l{number}", ticks=1, caller="key-1")
    assert len(await world.of_kind("insight")) == 3
    assert world.actor.counts["refused_party"] == len(model.shown) - 3 > 0


async def test_keys_take_turns_in_being_asked_about_however_much_one_sends(world: World, model: Scripted):
    await seen(world, 6, "quiet", ticks=0, caller="key-2")
    for number in range(4):
        await seen(world, 20, f"loud{number}", ticks=1, caller="key-1")
    assert [shown[0].caller for shown in model.shown][:2] == ["key-1", "key-2"]


async def test_an_extractor_that_is_away_stalls_nothing_and_is_asked_again(world: World, model: Scripted):
    model.away = True
    await seen(world, 8, "a", ticks=3)
    assert world.actor.counts["opinion_unavailable"] == 3
    await world.see(*traffic(30))
    model.away = False
    await world.tick(30.0, times=2)
    assert len(await world.of_kind("insight")) == 1


async def test_an_import_that_says_the_same_is_merged_and_the_better_supported_stays(world: World, model: Scripted):
    await seen(world, 8, "a")
    told = {"kind": "insight", "state": "candidate", "sources": ("elsewhere",), "independent": 1}
    await world.store.save([lesson("imported", LIKE.when_to_use, LIKE.content, origin="import", **told)])
    await world.tick(30.0, times=2)
    found = {one.origin: one for one in await world.of_kind("insight")}
    assert found["import"].state == "retired"
    assert found["import"].reason == f"says the same as {found['llm:test'].id}"


async def test_what_is_forgotten_leaves_the_window_and_is_not_drawn_from_again(world: World, model: Scripted):
    ids = tuple(run.id for run in await seen(world, 8, "a"))
    asked = len(model.shown)
    await world.store.tombstone(Selector(trajectories=ids), Scope(trajectories=ids))
    await world.store.erase(Scope(trajectories=ids))
    await forget(world.store, ids, lambda: world.now)
    await world.tick(30.0, times=5)
    assert [(one.state, one.reason, one.content) for one in await world.of_kind("insight")] == [
        ("retired", "forgotten", "")
    ]
    assert world.actor.counts["forgotten"] == 1
    await world.begin()
    await world.tick(30.0, times=5)
    assert len(model.shown) == asked, "neither at once nor after a restart"


@pytest.mark.parametrize("told", [True, False], ids=["kinds were told", "kinds know nothing"])
async def test_goals_in_free_words_that_mean_about_the_same_make_one_question(
    world: World, model: Scripted, told: bool
):
    asked = zip(cancels(4, "free"), ASKED, strict=False)
    runs = [msgspec.structs.replace(run, goal=goal, caller="") for run, goal in asked]
    for run in runs if told else ():
        world.actor.kinds.levels.tell(run)
    await world.see(*runs)
    await world.tick(30.0, times=2)
    assert [len(shown) for shown in model.shown] == ([4] if told else [])

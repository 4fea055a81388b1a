"""Lessons from a language model, in the experiencer, on the real store: candidates at most, and merged."""

import random
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from actors.experience import opinions
from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.experience.forgetting import forget
from actors.messages import Attributed, Attribution, Experience, Trajectory
from actors.ports.errors import ExtractorUnavailable
from actors.ports.extractors import Insight
from actors.store import Store
from actors.store.erasing import Scope, Selector
from actors.system.actor import Received, Result
from adapters.embedders.hashing import HashingEmbedder
from tests.support.travelling import play, plays

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
            raise ExtractorUnavailable("away")
        self.shown.append([*successes, *failures])
        return self.lessons


class World:
    def __init__(self, store: Store) -> None:
        self.store, self.now, self.extractor = store, 1000.0, Scripted()
        self.settings = ExperiencerSettings(contrast_every=100_000)
        self.actor = self.build()

    def build(self) -> Experiencer:
        return Experiencer(
            self.settings, store=self.store, prober=None, clock=lambda: self.now, extractor=self.extractor,
            embedder=HashingEmbedder(), exam=lambda key: False,
        )  # fmt: skip

    async def see(self, *runs: Trajectory) -> Result:
        items = [
            Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=(), judge="r", rubric="1"))
            for run in runs
        ]
        await self.store.save(items)
        return await self._commit(await self.actor.handle([Received(item.id, "", item) for item in items]))

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 30.0
            await self._commit(await self.actor.tick())

    async def _commit(self, result: Result) -> Result:
        await self.store.save(list(result.records))
        return result

    async def insights(self) -> list[Experience]:
        return [lesson for lesson in await self.store.experiences() if lesson.kind == "insight"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def world(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(opinions, "_EVERY", 10.0)
    monkeypatch.setattr(opinions, "_FRESH", 4)
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    world = World(store)
    await world.actor.start()
    yield world
    await store.aclose()


def cancels(count: int, name: str, **fields: object) -> list[Trajectory]:
    rng = random.Random(name)
    return [play(rng, "B", id=f"{name}-{n}", **fields).trajectory for n in range(count)]


async def test_an_insight_is_a_candidate_with_its_sources_and_who_drew_it(world: World):
    await world.see(*cancels(8, "a"))
    await world.tick()
    (lesson,) = await world.insights()
    assert (lesson.state, lesson.origin, lesson.when_to_use) == ("candidate", "llm:test", "cancelling an order")
    assert set(lesson.sources) == {run.id for run in world.extractor.shown[0]}
    assert lesson.independent == len(lesson.sources)


async def test_it_is_not_asked_again_without_enough_news_nor_before_its_time(world: World):
    await world.see(*cancels(8, "a"))
    await world.tick(3)
    assert len(world.extractor.shown) == 1
    await world.see(*cancels(4, "b"))
    world.now += 1.0
    await world.tick(2)
    assert len(world.extractor.shown) == 2


async def test_like_lessons_become_one_with_the_sources_of_both(world: World):
    await world.see(*cancels(8, "a"))
    await world.tick()
    world.extractor.lessons = (LIKE,)
    await world.see(*cancels(8, "b"))
    await world.tick(2)
    (lesson,) = await world.insights()
    assert lesson.content == ADVICE.content
    assert {source.split("-")[0] for source in lesson.sources} == {"a", "b"}
    assert world.actor.counts["merged"] == 1


async def test_with_several_keys_one_key_is_shown_at_a_time_and_its_lesson_waits_for_another_key(world: World):
    await world.see(*cancels(1, "x", caller="key-2"), *cancels(8, "a", caller="key-1"))
    await world.tick()
    assert {run.caller for run in world.extractor.shown[0]} == {"key-1"}
    (lesson,) = await world.insights()
    assert (lesson.state, lesson.reason) == ("quarantined", "1 of 2 independent sources")
    world.extractor.lessons = (LIKE,)
    await world.see(*cancels(8, "b", caller="key-1"))
    await world.tick(2)
    assert (await world.insights())[0].state == "quarantined", "the same key again makes it no truer"
    await world.see(*cancels(8, "c", caller="key-2"))
    await world.tick(2)
    (lesson,) = await world.insights()
    assert (lesson.state, lesson.independent, lesson.reason) == ("candidate", 2, "")


async def test_one_of_four_parties_has_a_third_of_the_room_for_lessons_and_no_more(world: World):
    world.settings = msgspec.structs.replace(world.settings, max_lessons=9)
    world.actor = world.build()
    await world.actor.start()
    for other in "bcd":
        runs = cancels(4, other, caller=f"key-{other}")
        await world.see(*(msgspec.structs.replace(run, outcome=None) for run in runs))
    words = ["apple", "bridge", "candle", "desert", "engine", "forest", "garden", "harbour", "island", "jungle"]
    for number, word in enumerate(words):
        world.extractor.lessons = (Insight(f"{word} {word}", f"{word} {word} {word} first"),)
        await world.see(*cancels(6, f"l{number}", caller="key-1"))
        await world.tick()
    assert len(await world.insights()) == 3
    assert world.actor.counts["refused_party"] == len(world.extractor.shown) - 3 > 0


async def test_keys_take_turns_in_being_asked_about_however_much_one_sends(world: World):
    await world.see(*cancels(6, "quiet", caller="key-2"))
    for number in range(4):
        await world.see(*cancels(20, f"loud{number}", caller="key-1"))
        await world.tick()
    asked = [shown[0].caller for shown in world.extractor.shown]
    assert asked[:2] == ["key-1", "key-2"]


async def test_an_extractor_that_is_away_stalls_nothing_and_is_asked_again(world: World):
    world.extractor.away = True
    await world.see(*cancels(8, "a"))
    await world.tick(3)
    assert world.actor.counts["opinion_unavailable"] == 3
    await world.see(*(played.trajectory for played in plays(30)))
    world.extractor.away = False
    await world.tick(2)
    assert len(await world.insights()) == 1


async def test_an_import_that_says_the_same_is_merged_and_the_better_supported_stays(world: World):
    await world.see(*cancels(8, "a"))
    await world.tick()
    await world.store.save(
        [
            Experience(
                id="imported", kind="insight", when_to_use=LIKE.when_to_use, content=LIKE.content, origin="import",
                sources=("elsewhere",), independent=1,
            )
        ]
    )  # fmt: skip
    await world.tick(2)
    found = {lesson.origin: lesson for lesson in await world.insights()}
    assert found["import"].state == "retired"
    assert found["import"].reason == f"says the same as {found['llm:test'].id}"


async def test_what_is_forgotten_leaves_the_window_and_is_not_drawn_from_again(world: World):
    runs = cancels(8, "a")
    await world.see(*runs)
    await world.tick()
    asked, ids = len(world.extractor.shown), tuple(run.id for run in runs)
    await world.store.tombstone(Selector(trajectories=ids), Scope(trajectories=ids))
    await world.store.erase(Scope(trajectories=ids))
    await forget(world.store, ids, lambda: world.now)
    await world.tick(5)
    assert [(one.state, one.reason, one.content) for one in await world.insights()] == [("retired", "forgotten", "")]
    assert world.actor.counts["forgotten"] == 1
    assert len(world.extractor.shown) == asked
    world.actor = world.build()
    await world.actor.start()
    await world.tick(5)
    assert len(world.extractor.shown) == asked, "neither at once nor after a restart"


@pytest.mark.parametrize("told", [True, False], ids=["kinds were told", "kinds know nothing"])
async def test_goals_in_free_words_that_mean_about_the_same_make_one_question(world: World, told: bool):
    goals = (
        "Please refund the invoice that I paid twice", "I want a refund: this invoice was paid twice",
        "the customer paid an invoice twice and wants a refund", "refund invoice, paid twice by mistake",
    )  # fmt: skip
    runs = [
        msgspec.structs.replace(run, goal=goal, caller="")
        for run, goal in zip(cancels(4, "free"), goals, strict=True)
    ]  # fmt: skip
    for run in runs if told else ():
        world.actor.kinds.tell(run)
    await world.see(*runs)
    await world.tick(2)
    assert [len(shown) for shown in world.extractor.shown] == ([4] if told else [])

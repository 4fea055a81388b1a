"""Episodes against an engine whose tokens are characters."""

import anyio
import pytest

from actors.messages import floats_array, ids_array, steps_array
from actors.ports.environments import Observation
from actors.ports.errors import EngineRejected
from actors.rollout.episode_runner import play
from actors.rollout.errors import EpisodeLost
from tests.support.fakes import FakeEngine, FakeEnvironment

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(skill={0: 1.0})


async def begin():
    environment = FakeEnvironment()
    return await environment.reset(environment.sample(0, "train", None))


def answering(engine, change) -> None:
    """From now on `change` makes the engine's answer of a request and of what it would have said."""
    usual = engine.chat

    async def chat(body):
        return change(body, await usual(body))

    engine.chat = chat


async def test_turns_join_to_one_row_with_exact_ids(engine):
    played = await play(engine, await begin())
    assert (played.outcome, played.finished, len(played.steps), len(played.rows)) == (1.0, True, 2, 1)
    row = played.rows[0]
    text = engine.text(ids_array(row.ids).tolist())
    assert text == (
        '[win,lose,finish]<system>desk</><user>task 0</><assistant>win{}</><tool>{"ok": "yes"}</><assistant>finish{}</>'
    )
    steps = steps_array(row.step)
    assert engine.text(ids_array(row.ids)[steps == 0].tolist()) == "win{}</>"
    assert engine.text(ids_array(row.ids)[steps == 1].tolist()) == "finish{}</>"
    assert set(floats_array(row.logprobs)[steps >= 0].tolist()) == {-0.5}
    assert set(ids_array(row.versions)[steps < 0].tolist()) == {-1}
    assert (played.min_version, played.max_version, played.why_not) == (0, 0, "")


async def test_a_version_change_on_the_way_is_seen(engine):
    episode = await begin()
    step = episode.step

    async def swap_after(calls, text):
        engine.current = 3
        return await step(calls, text)

    episode.step = swap_after
    played = await play(engine, episode)
    assert (played.min_version, played.max_version) == (0, 3)


async def test_a_lesson_is_recorded_as_a_span_that_cuts_out_exactly(engine):
    episode = await begin()
    plain = await engine.render(episode.messages, episode.tools)
    played = await play(engine, episode, lessons_text="\nLESSON one", system="desk")
    start, end = played.rows[0].hint
    ids = ids_array(played.rows[0].ids).tolist()
    assert "LESSON one" in engine.text(ids[start:end])
    assert (ids[:start] + ids[end:])[: len(plain)] == plain


async def test_rows_split_where_the_engine_renders_otherwise(engine):
    def other(body, made):
        return {**made, "prompt_token_ids": [len(body["messages"]), *made["prompt_token_ids"]]}

    answering(engine, other)
    played = await play(engine, await begin())
    assert [step.row for step in played.steps] == [0, 1]


async def test_chatter_is_a_turn_without_calls_and_the_limit_ends_it(engine):
    engine.chatter = "let me think"
    played = await play(engine, await begin(), max_steps=3)
    assert (len(played.steps), played.finished, played.outcome) == (3, False, 0.0)
    assert played.steps[0].text == "let me think"
    assert "error" in played.steps[0].observation


async def test_without_spans_the_known_version_stands_in(engine):
    engine.spans = False
    played = await play(engine, await begin(), version=lambda: 0)
    assert (played.min_version, played.why_not) == (0, "")
    assert (await play(engine, await begin(), version=lambda: -1)).why_not == "no weight versions"


async def test_greedy_rows_are_not_for_training(engine):
    assert (await play(engine, await begin(), temperature=0.0)).why_not == "greedy"


async def test_a_full_context_ends_the_episode_but_a_rejected_opening_loses_it(engine):
    shortest = 1

    def short(body, made):
        if len(body["messages"]) > shortest:
            raise EngineRejected("too long", 400)
        return made

    answering(engine, short)
    played = await play(engine, await begin())
    assert (len(played.steps), played.finished, played.outcome) == (1, False, 0.0)
    assert [step.cut for step in played.steps] == ["context"]
    shortest = 0
    with pytest.raises(EpisodeLost):
        await play(engine, await begin())


async def test_an_answer_that_ended_at_its_limit_of_tokens_is_told_from_one_that_ended(engine):
    def short(body, made):
        reason = "length" if len(body["messages"]) > 1 else "stop"
        return {**made, "choices": [{**choice, "finish_reason": reason} for choice in made["choices"]]}

    answering(engine, short)
    played = await play(engine, await begin())
    assert len(played.steps) > 1
    assert [step.cut for step in played.steps] == ["", *["length"] * (len(played.steps) - 1)]


@pytest.mark.parametrize(
    "damage",
    [
        {"choices": []},
        {"choices": [{"message": {"content": 3}}]},
        {"prompt_token_ids": None},
        {"choices": [{"message": {"content": "x"}, "token_ids": [1], "logprobs": None}]},
    ],
)
async def test_answers_without_exact_tokens_lose_the_episode(engine, damage):
    answering(engine, lambda body, made: {**made, **damage})
    with pytest.raises(EpisodeLost):
        await play(engine, await begin())


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_every_call_has_a_deadline(engine, anyio_backend):
    async def hang(body):
        await anyio.sleep_forever()

    engine.chat = hang
    with pytest.raises(EpisodeLost) as lost:
        await play(engine, await begin(), timeout=0.01)
    assert lost.value.reason == "timeout"


async def test_an_environment_may_answer_with_messages_of_its_own_and_bring_tools(engine):
    episode = await begin()
    take = episode.step

    async def step(calls, text):
        seen = await take(calls, text)
        episode.tools = [*episode.tools, {"type": "function", "function": {"name": "late", "parameters": {}}}]
        return Observation(seen.text, seen.done, ({"role": "user", "content": "and now?"},))

    episode.step = step
    played = await play(engine, episode)
    last = engine.text(ids_array(played.rows[-1].ids).tolist())
    assert last.startswith("[win,lose,finish,late]")
    assert "<user>and now?</>" in last
    assert "<tool>" not in last

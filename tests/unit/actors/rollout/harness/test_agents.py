"""A user's own loop in place of ours: in the process, through an unmodified client, and when it breaks."""

import contextlib
import json

import anyio
import httpx
import openai
import pytest

from actors.messages import Processing
from actors.rollout.context import ContextTemplate
from actors.rollout.episode_runner import play
from actors.rollout.errors import EpisodeLost, EpisodeOver, SamplingRefused
from actors.rollout.harness.agents import Agent
from tests.support.contexts import Babble, LongEpisode, Recorder, differences

pytestmark = pytest.mark.anyio
SEARCH = ("search", {"to": "Oslo"})


async def run(loop, *, seconds=20.0, engine=None, lessons="", **options):
    engine, episode = Recorder(engine or Babble(("", [SEARCH]))), LongEpisode(1)

    class Loop:
        async def run(self, session):
            await loop(session)

    played = await play(engine, episode, agent=Agent(Loop, seconds), lessons_text=lessons, **options)
    return engine, episode, played


async def converse(session):
    messages = session.messages
    for _ in range(3):
        answer = (await session.chat(messages, session.tools))["choices"][0]["message"]
        seen = await session.step(answer["tool_calls"])
        back = {"role": "tool", "content": seen.text, "tool_call_id": answer["tool_calls"][0]["id"]}
        messages = [*messages, answer, back]


async def by_blocking_client(session):
    """A framework with a loop of its own, which knows nothing but an address and a key."""

    def whole(url, key):
        http = httpx.Client(headers={"authorization": f"Bearer {key}"}, trust_env=False)
        with openai.OpenAI(base_url=url, api_key=key) as client, http:
            begun = http.get(f"{url}/episode").json()
            messages = begun["messages"]
            for _ in range(3):
                answer = client.chat.completions.create(model="x", messages=messages, tools=begun["tools"])
                message = answer.choices[0].message
                calls = [call.model_dump() for call in message.tool_calls]
                seen = http.post(f"{url}/step", json={"calls": calls}).json()
                back = {"role": "tool", "content": seen["text"], "tool_call_id": calls[0]["id"]}
                messages = [*messages, message.model_dump(exclude_none=True), back]

    async with session.endpoint() as found:
        await session.in_thread(lambda: whole(found.base_url, found.key))


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
@pytest.mark.parametrize("lessons", ["", "LESSON: go by train"], ids=["unguided", "guided"])
@pytest.mark.parametrize("loop", [converse, by_blocking_client])
async def test_a_loop_is_recorded_token_exactly_however_it_asks(loop, lessons):
    engine, episode, played = await run(loop, lessons=lessons)
    assert (len(played.steps), len(played.rows), played.ending, played.why_not) == (3, 1, "left", "")
    assert len(episode.made) == 3
    assert all(json.loads(step.observation)["found"] for step in played.steps)
    assert differences(engine, played, guided=bool(lessons)) == []
    assert all((lessons in request["messages"][0]["content"]) for request in engine.requests)


async def test_a_turn_with_strict_tools_says_that_a_grammar_shaped_it():
    async def loop(session):
        strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in session.tools]
        await session.chat(session.messages)
        await session.chat(session.messages, tools=strict)

    _, _, played = await run(loop)
    assert [row.processing for row in played.rows] == [Processing(), Processing(grammar=True)]


async def test_sampling_is_the_rollouts_and_not_the_loops():
    async def loop(session):
        await session.chat(session.messages, temperature=0.1, top_p=0.5, seed=7, max_tokens=9, stop=["x"])
        await session.chat(session.messages, max_completion_tokens=10_000, tool_choice="none", user="me")

    engine, _, _ = await run(loop, max_tokens=100)
    first, second = engine.requests
    assert (first["temperature"], first["top_p"], first["max_tokens"], first["stop"]) == (1.0, 1.0, 9, ["x"])
    assert (first["top_k"], first["repetition_penalty"]) == (0, 1.0), "an engine's own defaults stay out of it"
    assert (second["max_tokens"], second["tool_choice"], "user" in second) == (100, "none", False)


@pytest.mark.parametrize(
    "wanted",
    [
        {"response_format": {"type": "json_object"}}, {"tool_choice": "required"}, {"n": 2}, {"logit_bias": {"1": 5}},
        {"max_tokens": 0},
    ],
)  # fmt: skip
async def test_what_could_not_be_trained_on_is_refused_by_name(wanted):
    async def loop(session):
        with pytest.raises(SamplingRefused, match=next(iter(wanted))):
            await session.chat(session.messages, **wanted)
        await session.chat(session.messages, response_format={"type": "text"})

    await run(loop)


async def test_conversations_side_by_side_each_have_their_row():
    async def loop(session):
        ways = [[{"role": "user", "content": name}] for name in ("a", "b")]
        for _ in range(3):
            for at, messages in enumerate(ways):
                answer = (await session.chat(messages))["choices"][0]["message"]
                back = {"role": "tool", "content": "ok", "tool_call_id": answer["tool_calls"][0]["id"]}
                ways[at] = [*messages, answer, back]

    engine, _, played = await run(loop)
    assert [step.row for step in played.steps] == [0, 1, 0, 1, 0, 1]
    assert differences(engine, played) == []


async def test_a_lesson_is_found_anew_where_another_system_text_begins_a_row():
    async def loop(session):
        for system in ("plan", "act well"):
            await session.chat([{"role": "system", "content": system}, {"role": "user", "content": "x"}])

    engine, _, played = await run(loop, lessons="LESSON")
    assert played.why_not == ""
    assert played.rows[0].hint != played.rows[1].hint
    assert differences(engine, played, guided=True) == []


async def boom(session):
    await session.chat(session.messages)
    raise RuntimeError("boom")


async def silent(session):
    pass


async def endless(session):
    await session.chat(session.messages)
    await anyio.sleep_forever()


async def leaves(session):
    raise SystemExit(3)


async def grouped(session):
    async with anyio.create_task_group() as group:
        group.start_soon(boom, session)


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (boom, "boom"),
        (silent, "asked the model for nothing"),
        (endless, "no end"),
        (grouped, "sub-exception"),
        (leaves, "3"),
    ],
)
async def test_what_a_loop_breaks_is_the_loss_of_its_episode(loop, why):
    with pytest.raises(EpisodeLost, match=why) as lost:
        await run(loop, seconds=0.5 if loop is endless else 20.0)
    assert lost.value.reason == "agent_failed"


async def test_an_engine_that_breaks_is_not_the_loops_fault_even_if_it_swallows_it():
    async def loop(session):
        await session.chat(session.messages)
        engine.down = True
        try:
            await session.chat(session.messages)
        except EpisodeLost:
            engine.down = False
        with pytest.raises(EpisodeLost):
            await session.chat(session.messages)
        raise KeyError("what now?")

    engine = Babble(("", [SEARCH]))
    with pytest.raises(EpisodeLost) as lost:
        await run(loop, engine=engine)
    assert lost.value.reason == "engine_unavailable"


async def test_the_endpoint_wants_its_key_refuses_nonsense_and_is_gone_in_the_end():
    where = []

    async def loop(session):
        async with session.endpoint() as found:
            where.append(found.base_url)
            async with httpx.AsyncClient(trust_env=False) as http:
                for headers in ({}, {"authorization": "Bearer x"}, {"authorization": b"Bearer \xe9"}):
                    url = f"{found.base_url}/chat/completions"
                    assert (await http.post(url, json={}, headers=headers)).status_code == 401
                http.headers["authorization"] = f"Bearer {found.key}"
                for body in (b"", b"[]", b"{}", b'{"messages": [3]}', b'{"messages": "x"}', b"\xff"):
                    answer = await http.post(url, content=body)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
                assert (await http.post(f"{found.base_url}/step", json={"calls": [{}]})).status_code == 400
                assert (await http.get(f"{found.base_url}/models")).json()["data"][0]["id"] == found.model
        await session.chat(session.messages)

    await run(loop)
    assert where[0].startswith("http://127.0.0.1:")
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.TransportError):
            await http.get(f"{where[0]}/models")


@pytest.mark.parametrize(
    ("options", "ending"), [({"max_steps": 2}, "steps"), ({"context": ContextTemplate(budget=1500)}, "budget")]
)
async def test_a_loop_that_does_not_stop_is_told_that_it_is_over_and_keeps_what_it_has(options, ending):
    async def loop(session):
        messages = session.messages
        with contextlib.suppress(EpisodeOver):
            for _ in range(99):
                messages = [*messages, {"role": "user", "content": "go on " * 20}]
                await session.chat(messages)
        with pytest.raises(EpisodeOver, match=ending):
            await session.step([])

    engine, episode, played = await run(loop, **options)
    assert (played.ending, episode.made) == (ending, [])
    assert 1 < len(played.steps) == len(engine.prompts) <= (2 if ending == "steps" else 98)
    assert len(engine.prompts[-1]) <= 1500


@pytest.mark.parametrize("calls", [[SEARCH, SEARCH], []])
async def test_a_client_that_streams_reads_the_same_turn_and_what_its_loop_raises_comes_as_it_was(calls):
    async def loop(session):
        async with session.endpoint() as found, httpx.AsyncClient(trust_env=False) as http:
            client = openai.AsyncOpenAI(base_url=found.base_url, api_key=found.key, http_client=http)
            stream = await client.chat.completions.create(model="x", messages=session.messages, stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
            read = [(call.index, call.function.name) for delta in deltas for call in delta.tool_calls or []]
            assert read == [(at, name) for at, (name, _) in enumerate(calls)]
            assert "".join(delta.content or "" for delta in deltas) == "words"
            raise LookupError("all was read")

    with pytest.raises(EpisodeLost, match="LookupError: all was read"):
        await run(loop, engine=Babble(("words", calls)))

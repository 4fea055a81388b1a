"""The tap before a real vLLM: agents see what they would see without it, and what is kept is the truth."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.messages import Exchange, floats_array, ids_array
from actors.trajectories.parsed_exchange import read_turn
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from tests.clients.verdict import stitched
from tests.support.epochs import seen_epoch
from tests.support.patience import within
from tests.support.tapping import Rig, running_tap
from tests.vllm.conftest import Started

pytestmark = pytest.mark.anyio
MESSAGES = [{"role": "user", "content": "book a flight to Oslo, please"}]
PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "find_person", "parameters": PARAMETERS}}]
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
BLOCKS = "/v1/messages"
FUNCTIONS = [{"type": "function", "name": "find_person", "parameters": PARAMETERS}]
SCHEMAS = [{"name": "find_person", "input_schema": PARAMETERS}]
TURNS = [
    *MESSAGES,
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "who?", "signature": "s"}, {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "t1", "name": "find_person", "input": {"name": "Ada"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "none"}]},
        {"type": "text", "text": "go"}, {"type": "text", "text": "on"}]},
]  # fmt: skip
ONE_TOOL = {"type": "auto", "disable_parallel_tool_use": True}
ATTEMPTS = 32


@pytest.fixture
def anyio_backend() -> object:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def rig(vllm: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_tap(tmp_path, int(vllm.rpartition(":")[2])) as running:
        yield running


@pytest.fixture
async def desk(tiny: Started, versions: Path) -> str:
    """Base URL of a server with the plug-in that stores responses; it always says the same tool call."""
    async with VllmEngine(tiny.url) as engine:
        job = SwapJob(
            engine=tiny.url, path=str(versions / "scripted"), version=0, result="", epoch=seen_epoch(tiny.url)
        )
        assert (await perform(job, engine)).result == "swapped"
    return tiny.url


@pytest.fixture
async def desk_rig(desk: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_tap(tmp_path, int(desk.rpartition(":")[2])) as running:
        yield running


def bare(answer: bytes) -> bytes:
    """An answer without what differs between any two: ids and times."""
    prefix = rb"(chatcmpl-|chatcmpl-tool-|call_|cmpl-|resp_|msg_|fc_)?"
    answer = re.sub(rb'"(id|item_id|call_id)":"' + prefix + rb'[0-9a-f]+"', b'"id":"-"', answer)
    return re.sub(rb'"created(_at)?":\d+', b'"created":0', answer)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CHAT, {"messages": MESSAGES}),
        (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
        (CHAT, {"messages": MESSAGES, "return_token_ids": True}),
        (CHAT, {"messages": MESSAGES, "return_token_ids": True, "logprobs": True}),
        (CHAT, {"messages": MESSAGES, "tools": TOOLS}),
        (CHAT, {"messages": MESSAGES, "temperature": 1.0, "seed": 5, "n": 2}),
        (CHAT, {"messages": "no list"}),
        (COMPLETIONS, {"prompt": "hello"}),
        (COMPLETIONS, {"prompt": "hello", "logprobs": 1, "echo": True}),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 12}),
        (BLOCKS, {"messages": MESSAGES}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
async def test_an_agent_sees_what_it_would_see_without_the_tap(
    vllm: str, rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    await same(vllm, rig, path, asked, stream)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (RESPONSES, {"input": "hello"}),
        (RESPONSES, {"input": MESSAGES, "tools": FUNCTIONS}),
        (RESPONSES, {"input": "hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2}),
        (RESPONSES, {"input": MESSAGES, "instructions": "Brief.", "parallel_tool_calls": False, "tools": FUNCTIONS}),
        (RESPONSES, {"input": "hello", "store": False, "reasoning": {"effort": "low"}}),
        (RESPONSES, {"input": 5}),
        (BLOCKS, {"messages": MESSAGES}),
        (BLOCKS, {"messages": MESSAGES, "tools": SCHEMAS}),
        (BLOCKS, {"messages": TURNS, "tools": SCHEMAS, "system": [{"type": "text", "text": t} for t in ("Be", "so.")]}),
        (BLOCKS, {"messages": MESSAGES, "tools": SCHEMAS, "tool_choice": ONE_TOOL}),
        (BLOCKS, {"messages": MESSAGES, "stop_sequences": ["a"], "metadata": {"user_id": "x"}}),
        (BLOCKS, {"messages": 5}),
    ],
)
async def test_the_plug_in_changes_nothing_that_an_agent_of_another_api_sees(
    desk: str, desk_rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    await same(desk, desk_rig, path, {"max_output_tokens" if path == RESPONSES else "max_tokens": 24, **asked}, stream)


async def same(engine: str, rig: Rig, path: str, asked: dict[str, object], stream: bool) -> None:
    """The answer to `asked` is the same from the engine and through the tap."""
    body = {"model": "tiny", "temperature": 0, "max_tokens": 12, **asked, "stream": stream}
    if "max_output_tokens" in asked:
        del body["max_tokens"]
    async with httpx.AsyncClient(timeout=within()) as http:
        for _ in range(ATTEMPTS):
            # vLLM puts tokens that are ready at one time into one event: two streams may be cut differently.
            direct = await http.post(engine + path, json=body)
            through = await http.post(rig.url + path, json=body)
            if bare(direct.content) == bare(through.content):
                break
        assert bare(through.content) == bare(direct.content)
    assert through.status_code == direct.status_code
    kept = {name: through.headers.get(name) for name in ("content-type", "server")}
    assert kept == {name: direct.headers.get(name) for name in kept}


async def kept(rig: Rig, path: str, body: dict[str, object]) -> Exchange:
    async with httpx.AsyncClient(timeout=within()) as http:
        assert (await http.post(rig.url + path, json={"model": "tiny", **body})).status_code == 200
    (record,) = await rig.records()
    assert isinstance(record, Exchange)
    return record


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("path", "asked"), [(CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "hello"})], ids=["chat", "completions"]
)
async def test_the_kept_ids_are_the_engines_own(
    vllm: str, rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    body = {**asked, "temperature": 1.0, "seed": 7, "max_tokens": 8}
    exchange = await kept(rig, path, {**body, "stream": stream})
    async with httpx.AsyncClient(timeout=within()) as http:
        truth = (await http.post(vllm + path, json={"model": "tiny", **body, "return_token_ids": True})).json()
    choice = truth["choices"][0]
    assert ids_array(exchange.response_ids).tolist() == choice["token_ids"]
    assert ids_array(exchange.prompt_ids).tolist() == (choice.get("prompt_token_ids") or truth["prompt_token_ids"])
    assert len(exchange.logprobs) == len(exchange.response_ids)
    assert exchange.error == ""


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (RESPONSES, {"input": MESSAGES, "tools": FUNCTIONS, "max_output_tokens": 24}),
        (BLOCKS, {"messages": TURNS, "tools": SCHEMAS, "max_tokens": 24}),
    ],
    ids=["responses", "messages"],
)
async def test_a_call_of_another_api_trains_where_the_plug_in_is(
    desk: str, desk_rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    """The log-probs are those that the engine itself has for these tokens after this prompt."""
    exchange = await kept(desk_rig, path, {**asked, "stream": stream})
    assert read_turn(exchange).why_not == ""
    assert not any(name in exchange.response for name in (b'"tokens"', b'"logprobs":[-', b"evolved_tokens"))
    prompt, said = ids_array(exchange.prompt_ids).tolist(), ids_array(exchange.response_ids).tolist()
    body = {"model": "tiny", "prompt": prompt + said, "max_tokens": 1, "prompt_logprobs": 0}
    async with httpx.AsyncClient(timeout=within()) as http:
        (choice,) = (await http.post(desk + COMPLETIONS, json=body)).json()["choices"]
    told = choice["prompt_logprobs"][len(prompt) :]
    truth = [entry[str(token)]["logprob"] for entry, token in zip(told, said, strict=True)]
    assert floats_array(exchange.logprobs).tolist() == pytest.approx(truth, abs=1e-3)


async def one_trajectory(rig: Rig) -> None:
    """Three calls were kept, and are a run that trains."""
    seen = [record for record in await rig.records(3) if isinstance(record, Exchange)]
    ((run, _),) = stitched(seen).trajectories
    assert (len(run.steps), run.trainable, run.why_not) == (3, True, "")


async def test_a_run_by_previous_response_ids_is_one_trajectory_and_trains(desk_rig: Rig) -> None:
    body: dict[str, Any] = {"model": "tiny", "tools": FUNCTIONS, "max_output_tokens": 24}
    async with httpx.AsyncClient(timeout=within()) as http:
        items: object = "book a flight to Oslo, please"
        for _ in range(3):
            answer = (await http.post(desk_rig.url + RESPONSES, json={**body, "input": items})).json()
            body["previous_response_id"] = answer["id"]
            calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
            items = [{"type": "function_call_output", "call_id": call, "output": "none"} for call in calls] or "go on"
        stored = (await http.get(f"{desk_rig.url}{RESPONSES}/{answer['id']}")).json()
    assert stored == answer, "the engine keeps what the tap had asked for, and the agent does not see it"
    await one_trajectory(desk_rig)


async def test_a_run_of_messages_is_one_trajectory_and_trains(desk_rig: Rig) -> None:
    said: list[Any] = list(MESSAGES)
    async with httpx.AsyncClient(timeout=within()) as http:
        for _ in range(3):
            body = {"model": "tiny", "tools": SCHEMAS, "max_tokens": 24, "messages": said}
            content = (await http.post(desk_rig.url + BLOCKS, json=body)).json()["content"]
            said.append({"role": "assistant", "content": content})
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call, "content": "none"} for call in calls]
            said.append({"role": "user", "content": results or "go on"})
    await one_trajectory(desk_rig)

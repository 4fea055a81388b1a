"""The tap before a real vLLM: agents see what they would see without it, and what is kept is the truth."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from actors.messages import Exchange, ids_array
from actors.messages.spool import RawExchange
from actors.trajectories.parsed_exchange import read_turn
from adapters.intake.tap import exchange_from_raw
from tests.support.tapping import Rig, running_tap

pytestmark = pytest.mark.anyio
MESSAGES = [{"role": "user", "content": "book a flight to Oslo, please"}]
PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "find_person", "parameters": PARAMETERS}}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ATTEMPTS = 32


@pytest.fixture
def anyio_backend() -> object:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def rig(vllm: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_tap(tmp_path, int(vllm.rpartition(":")[2])) as running:
        yield running


def bare(answer: bytes) -> bytes:
    """An answer without what differs between any two: ids and times."""
    answer = re.sub(rb'"(id|item_id)":"(chatcmpl-|chatcmpl-tool-|cmpl-|resp_|msg_)[0-9a-f]+"', b'"id":"-"', answer)
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
        ("/v1/messages", {"messages": MESSAGES}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
async def test_an_agent_sees_what_it_would_see_without_the_tap(
    vllm: str, rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    body = {"model": "desk", "temperature": 0, "max_tokens": 12, **asked, "stream": stream}
    if "max_output_tokens" in asked:
        del body["max_tokens"]
    async with httpx.AsyncClient(timeout=60) as http:
        for _ in range(ATTEMPTS):
            # vLLM puts tokens that are ready at one time into one event: two streams may be cut differently.
            direct = await http.post(vllm + path, json=body)
            through = await http.post(rig.url + path, json=body)
            if bare(direct.content) == bare(through.content):
                break
        assert bare(through.content) == bare(direct.content)
    assert through.status_code == direct.status_code
    kept = {name: through.headers.get(name) for name in ("content-type", "server")}
    assert kept == {name: direct.headers.get(name) for name in kept}


async def kept(rig: Rig, path: str, body: dict[str, object]) -> Exchange:
    async with httpx.AsyncClient(timeout=60) as http:
        assert (await http.post(rig.url + path, json={"model": "desk", **body})).status_code == 200
    (record,) = await rig.records()
    assert isinstance(record, RawExchange)
    return exchange_from_raw(record)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(
    ("path", "asked"), [(CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "hello"})], ids=["chat", "completions"]
)
async def test_the_kept_ids_are_the_engines_own(
    vllm: str, rig: Rig, path: str, asked: dict[str, object], stream: bool
) -> None:
    body = {**asked, "temperature": 1.0, "seed": 7, "max_tokens": 8}
    exchange = await kept(rig, path, {**body, "stream": stream})
    async with httpx.AsyncClient(timeout=60) as http:
        truth = (await http.post(vllm + path, json={"model": "desk", **body, "return_token_ids": True})).json()
    choice = truth["choices"][0]
    assert ids_array(exchange.response_ids).tolist() == choice["token_ids"]
    assert ids_array(exchange.prompt_ids).tolist() == (choice.get("prompt_token_ids") or truth["prompt_token_ids"])
    assert len(exchange.logprobs) == len(exchange.response_ids)
    assert exchange.error == ""


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/responses", {"input": "hello", "max_output_tokens": 8}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8}),
    ],
    ids=["responses", "messages"],
)
async def test_where_vllm_gives_no_ids_the_turn_says_so(rig: Rig, path: str, asked: dict[str, object]) -> None:
    exchange = await kept(rig, path, {**asked, "temperature": 1.0})
    assert (exchange.prompt_ids, exchange.response_ids, exchange.error) == (b"", b"", "")
    assert read_turn(exchange).why_not.startswith("no token ids")


@pytest.mark.parametrize("path", ["/pause", "/collective_rpc", "/update_weights", "/sleep", "/reset_prefix_cache"])
async def test_the_admin_plane_is_out_of_reach(vllm: str, rig: Rig, path: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        assert (await http.post(rig.url + path, json={})).status_code == 404
        assert (await http.get(f"{rig.url}/health")).status_code == 200

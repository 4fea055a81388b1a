"""The engine client: what it makes of answers and of failures. On real sockets where the failure is one of sockets."""

import anyio
import httpx
import pytest

from actors.messages import Sampling
from actors.ports.errors import EngineRejected, EngineUnavailable
from adapters.engines.client import Deadlines, EngineClient
from tests.support.engine import answer, running_engine

pytestmark = pytest.mark.anyio
QUICK = Deadlines(connect=0.5, small=0.3, sample=0.3, load=0.3)


def client(status: int, body: object) -> EngineClient:
    """A client whose engine always answers the same."""
    transport = httpx.MockTransport(lambda request: httpx.Response(status, json=body))
    return EngineClient("http://engine", name="serving", model="m", transport=transport)


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_refused_connection_is_unavailable():
    async with running_engine() as engine:
        port = engine.port
    async with EngineClient(f"http://127.0.0.1:{port}", name="serving") as gone:
        with pytest.raises(EngineUnavailable, match=r"serving .* cannot be reached"):
            await gone.version()
        assert not await gone.health()


async def test_a_deadline_holds_though_bytes_keep_coming():
    async def drip(engine, asked, stream):
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with anyio.move_on_after(5):
            while True:
                await stream.send(b" ")
                await anyio.sleep(0.05)
        return False

    async with running_engine() as engine:
        engine.script = drip
        async with EngineClient(f"http://127.0.0.1:{engine.port}", model="m", deadlines=QUICK) as slow:
            with pytest.raises(EngineUnavailable, match=r"did not answer /v1/chat/completions within 0\.3 s"):
                await slow.chat({"messages": []})


async def scored(engine: EngineClient):
    return await engine.log_probs([1, 2])


OF_DEV_MODE = (EngineClient.version, EngineClient.pause, EngineClient.resume)
NO = {"error": {"message": "no"}}
SHORT = {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -0.5}]}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("status", "body", "call", "told"),
    [
        *((404, NO, call, r"no; .* start it with VLLM_SERVER_DEV_MODE=1") for call in OF_DEV_MODE),
        *((status, NO, scored, r"no; .* start it with --enable-scale-out") for status in (403, 404)),
        *((200, body, EngineClient.version, "serving") for body in ([], {}, {"weight_version": 3})),
        (200, {"choices": [SHORT]}, lambda engine: engine.generate([1], max_tokens=2), "2 tokens with 1 log-probs"),
    ],
)
async def test_closed_endpoints_and_odd_answers_are_named(status, body, call, told):
    with pytest.raises(EngineRejected, match=told):
        await call(client(status, body))


async def test_a_connection_that_the_engine_closed_while_it_was_idle_costs_nothing():

    async def script(engine, asked, stream) -> bool:
        engine.seen = getattr(engine, "seen", 0) + 1
        if engine.seen == 2:
            return False  # the second request on the first connection: closed, without an answer
        await stream.send(answer(200, {"weight_version": "7"}))
        return True

    async with running_engine() as engine:
        engine.script = script
        async with EngineClient(f"http://127.0.0.1:{engine.port}", name="serving") as kept:
            assert [await kept.version(), await kept.version()] == [7, 7]
        assert engine.seen == 3


async def test_an_engine_without_tools_is_asked_without_one():
    def reply(request: httpx.Request) -> httpx.Response:
        if b"tools" in request.content:
            return httpx.Response(400, json={"error": {"message": '"auto" tool choice requires a parser'}})
        return httpx.Response(200, json={"sampling_params": {"temperature": 0.6}})

    async with EngineClient("http://engine", model="m", transport=httpx.MockTransport(reply)) as engine:
        assert await engine.sampling_defaults() == Sampling(temperature=0.6)

"""The embedded engine as a process: what only it promises, beyond `tests/contract/test_engine.py`."""

import shutil
import subprocess
import sys

import anyio
import httpx
import pytest

from actors.ports.errors import CheckpointRefused
from adapters.engines.client import EngineClient
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.patience import until, within

pytestmark = [pytest.mark.anyio, pytest.mark.torch]
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("embedded") / "checkpoints"
    checkpoints.write_all(directory)
    return directory


@pytest.fixture(scope="module")
def url(directory):
    options = ("--dev-mode", "--weight-version", "5", "--max-num-seqs", "4", "--max-waiting", "30")
    with embedded_engine(directory / "a", *options) as url:
        yield url


@pytest.fixture
async def engine(url):
    async with EngineClient(url) as engine:
        yield engine


async def gauge(engine: EngineClient, name: str) -> float:
    lines = (await engine.metrics()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@pytest.mark.parametrize("how", ["shape", "nan", "path"])
async def test_looks_at_a_checkpoint_itself_before_it_touches_what_serves(engine, directory, tmp_path, how):
    bad = tmp_path / "bad"
    shutil.copytree(directory / "b", bad)
    checkpoints.spoil(bad, how)
    before = await engine.generate([1, 2, 3], max_tokens=8, temperature=0.0)
    with pytest.raises(CheckpointRefused, match="bad"):
        await engine.load(bad)
    assert await engine.generate([1, 2, 3], max_tokens=8, temperature=0.0) == before


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_row(engine, url, stream):
    body = {"messages": HELLO, "max_tokens": 900, "ignore_eos": True, "stream": stream, "logprobs": True}

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=within()) as http:
            await http.post(CHAT, json=body)

    async def there() -> float:
        return await gauge(engine, "num_requests_running") + await gauge(engine, "num_requests_waiting")

    await engine.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await until(there, "the request arrives")
        group.cancel_scope.cancel()
    await engine.resume()

    async def gone() -> bool:
        return not await there()

    await until(gone, "its row is free")


async def test_requests_beyond_what_may_wait_are_turned_away_and_counted(engine, url):
    refused = []

    async def one(http: httpx.AsyncClient) -> None:
        body = {"messages": HELLO, "max_tokens": 2}
        response = await http.post(CHAT, json=body, timeout=within())
        if response.status_code == 503:
            refused.append(response.json()["error"]["message"])
            if len(refused) == 3:
                await engine.resume()  # the others may finish

    await engine.pause()
    async with httpx.AsyncClient(base_url=url) as http, anyio.create_task_group() as group:
        for _ in range(33):
            group.start_soon(one, http)
    assert len(refused) == 3
    assert await gauge(engine, "admission_rejections_total") == 3


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (CHAT, b"{", "cannot be read"),
        (CHAT, b"[]", "cannot be read"),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "top_k": 5}', "top_k=5 is not supported"),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": "many"}', "max_tokens"),
        (CHAT, b'{"messages": []}', "messages must not be empty"),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "n=2 is not supported"),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}', "tool_choice"),
        ("/inference/v1/generate", b'{"token_ids": [1, 99999]}', "token_ids must lie between 0 and"),
    ],
)
async def test_what_is_wrong_with_a_request_is_said(url, path, body, says):
    async with httpx.AsyncClient(base_url=url) as http:
        response = await http.post(path, content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "BadRequestError"
    assert says in error["message"]


async def test_modes_of_pause_that_lose_requests_are_refused(url):
    async with httpx.AsyncClient(base_url=url) as http:
        for mode in ("abort", "wait", ""):
            assert (await http.post(f"/pause?mode={mode}")).status_code == 400
        assert (await http.get("/is_paused")).json() == {"is_paused": False}


async def test_without_dev_mode_nothing_that_changes_weights_exists(directory):
    with embedded_engine(directory / "a") as url:
        async with httpx.AsyncClient(base_url=url) as http:
            for path in ("/pause?mode=keep", "/resume", "/collective_rpc", "/update_weight_version"):
                assert (await http.post(path, json={})).status_code == 404
            assert (await http.get("/v1/models")).status_code == 200


def test_a_checkpoint_that_cannot_be_served_ends_the_start_with_the_reason(directory, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(directory / "a", bad)
    checkpoints.spoil(bad, "missing")
    ended = subprocess.run(
        [sys.executable, "-m", "adapters.engines.embedded", "--model", str(bad), "--port", "0"],
        capture_output=True, text=True, timeout=within(),
    )  # fmt: skip
    assert ended.returncode == 2
    assert "up_proj.weight" in ended.stderr

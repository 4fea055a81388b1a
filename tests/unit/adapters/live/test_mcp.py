"""The MCP adapter: over pipes with a server that misbehaves, and over HTTP with the SDK's server and with odd ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import structlog.testing

from actors.ports.errors import AdapterNotSetUp, LiveApiError, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from actors.system import runtime
from adapters.live import CallResult
from adapters.live.addresses import AddressGuard
from adapters.live.mcp import McpApi, McpSettings
from tests.support.http_api import HttpApi, Said
from tests.support.patience import until, wait_until, within
from tests.support.process import alive, family

pytestmark = pytest.mark.anyio
SUPPORT = Path(__file__).parents[3] / "support"
SERVER = str(SUPPORT / "bad_mcp_server.py")
both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def server(mode: str = "good", **settings: object) -> McpApi:
    """A server over pipes."""
    given = {"backoff": 0.01, "grace": 0.2} | settings
    return McpApi(mode, McpSettings(command=(sys.executable, SERVER, mode), **given))


def over_http(url: str, *, guard: AddressGuard | None = None, **settings: object) -> McpApi:
    return McpApi("http", McpSettings(url=url, **{"backoff": 0.01, "timeout": 20.0} | settings), guard=guard)


async def eventually(ask: Callable[[], Awaitable[CallResult]]) -> CallResult:
    """An answer, past the pause that follows a death."""
    with anyio.fail_after(within()):
        while True:
            try:
                return await ask()
            except LiveApiUnavailable as error:
                await anyio.sleep(error.retry_after or 0.02)


@both
async def test_answers_errors_and_structured_content_come_as_results():
    async with server() as api:
        echoed = await api.call("echo", {"size": 3})
        assert (json.loads(echoed.text), echoed.error, echoed.source) == ({"size": 3}, False, "live")
        # A JSON-RPC error is the server's no as well.
        assert [(await api.call(tool, {})).error for tool in ("fail", "refuse")] == [True, True]
        shaped = await api.call("shaped", {})
        assert (shaped.structured, shaped.text) == ({"n": 3}, '{"n": 3}')
        with pytest.raises(LiveApiMalformed, match="misshapen"):
            await api.call("misshapen", {})
        pictured = await api.call("picture", {})
        assert pictured.text == "[image/png, 600 bytes, left out]\n[resource file:///a.txt: a.txt]\ntext of b"
        with pytest.raises(LiveApiRefused, match="no tool 'nope'"):
            await api.call("nope", {})


async def test_what_a_server_says_of_itself_is_a_claim_and_changed_tools_are_listed_anew():
    async with server() as api:
        before = {operation.name: operation.claims_read_only for operation in await api.tools()}
        # The tool that wipes says that it only reads; nothing but a policy can know better.
        assert (before["wipe"], before["write"]) == (True, False)
        assert (api.read_only("wipe"), api.read_only("write"), api.read_only("nope")) == (True, False, False)
        await api.call("more_tools", {})
        assert {tool.name for tool in await api.tools()} - set(before) == {"new_one"}


@both
@pytest.mark.parametrize(
    ("tool", "size", "error", "told"),
    [
        ("large", 1_000_000, LiveApiMalformed, "100,000 bytes"),
        ("die", 0, LiveApiUnavailable, "Segmentation fault, more or less"),
    ],
)
async def test_what_ends_the_connection_is_told_and_the_next_call_has_another(tool, size, error, told):
    async with server(max_message=100_000) as api:
        assert len((await api.call("large", {"size": 90_000})).text) == 90_000
        with pytest.raises(error, match=told):
            await api.call(tool, {"size": size})
        assert (await eventually(lambda: api.call("count", {}))).text.startswith("1 calls")
        assert api.starts == 2


async def test_a_server_that_dies_again_and_again_is_not_started_for_each_call():
    async with server("die_at_start", backoff=60.0) as api:
        for _ in range(20):
            with pytest.raises(LiveApiUnavailable) as refused:
                await api.tools()
        assert api.starts == 1
        assert 50 < refused.value.retry_after <= 60


async def test_a_server_that_hangs_at_its_start_is_given_up_and_leaves_no_process():
    before = set(family(os.getpid()))
    async with server("hang_at_start", start_timeout=0.3) as api:
        with pytest.raises(LiveApiUnavailable, match=r"within 0\.3 s"):
            await api.tools()
        assert not [pid for pid in set(family(os.getpid())) - before if alive(pid)]


@both
async def test_calls_have_a_deadline_and_a_server_that_answers_none_of_three_is_replaced():
    async with server(timeout=2.0) as api:
        pid = int((await api.call("count", {})).text.split()[-1])

        async def hang() -> None:
            with pytest.raises(LiveApiUnavailable, match="deadline"):
                await api.call("hang", {})

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(hang)
        await until(lambda: not alive(pid), "the server has ended")
        assert (await eventually(lambda: api.call("count", {}))).text.startswith("1 calls")


async def test_five_hundred_tools_come_over_several_pages_and_names_that_collide_are_told_apart():
    async with server("many") as api:
        tools = await api.tools()
        assert (len(tools), len({tool.name for tool in tools}), api.skipped) == (500, 500, 0)
    async with server("many", max_tools=120) as api:
        # Two pages of a hundred were asked for, the rest is not even fetched.
        assert (len(await api.tools()), api.skipped) == (120, 80)
    async with server("endless") as api:
        assert len(await api.tools()) == len({tool.name for tool in await api.tools()})
    async with server("colliding") as api:
        titles = {operation.title or operation.name: operation.name for operation in await api.tools()}
        assert set(titles) == {"a.b", "a_b", "a/b", "x" * 90 + "1", "x" * 90 + "2"}
        assert len(set(titles.values())) == 5
        assert api.skipped == 1  # a.b is listed twice


@pytest.mark.promise
async def test_the_child_gets_no_environment_but_what_it_needs_and_what_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("OURS", "hunter2")
    (tmp_path / "token").write_text("t0ken\n")
    async with server(environment={"TOKEN": f"file:{tmp_path}/token", "MODE": "plain"}) as api:
        seen = json.loads((await api.call("environment", {})).text)
    assert set(seen) <= {"PATH", "HOME", "LANG", "LC_CTYPE", "TOKEN", "MODE"}  # LC_CTYPE: Python's own (PEP 538)
    assert (seen["TOKEN"], seen["MODE"]) == ("t0ken", "plain")
    async with server(environment={"TOKEN": "env:NO_SUCH_VARIABLE"}) as api:
        with pytest.raises(AdapterNotSetUp, match="NO_SUCH_VARIABLE"):
            await api.tools()


@pytest.mark.promise
async def test_a_secret_that_the_server_complains_with_is_not_in_logs_or_errors(monkeypatch):
    monkeypatch.setenv("THEIR_PASSWORD", "correct-horse-battery")
    async with server("die_at_start", environment={"SECRET": "env:THEIR_PASSWORD"}) as api:
        with structlog.testing.capture_logs() as logs, pytest.raises(LiveApiUnavailable) as died:
            await api.tools()
    assert "cannot open the database" in str(died.value)
    assert any(log["event"] == "mcp.stderr" for log in logs)
    assert "correct-horse" not in str(died.value) + json.dumps(logs)


async def test_a_server_that_prints_is_understood_and_many_calls_at_once_get_their_own_answers():
    answers = {}

    async def ask(api: McpApi, number: int) -> None:
        answers[number] = json.loads((await api.call("echo", {"size": number})).text)["size"]

    async with server("chatty") as api, anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(ask, api, number)
    assert answers == {number: number for number in range(50)}


@both
async def test_a_server_that_will_not_go_is_killed():
    async with server("stubborn") as api:
        pid = int((await api.call("count", {})).text.split()[-1])
        assert alive(pid)
    await until(lambda: not alive(pid), "the child has ended")


async def test_what_cannot_be_reached_says_how():
    async with McpApi("gone", McpSettings(command=("no-such-server",))) as api:
        with pytest.raises(LiveApiUnavailable, match="no-such-server: No such file"):
            await api.tools()


def test_it_runs_where_the_actors_run():
    async def main(host):
        async with server() as api:
            return (await api.call("echo", {"size": 1})).text

    assert runtime.run(main) == '{"size": 1}'


_HOLDS_A_SERVER = """
import sys, anyio
from adapters.live.mcp import McpApi, McpSettings

async def main():
    async with McpApi("held", McpSettings(command=(sys.executable, sys.argv[1], "stubborn"))) as api:
        print((await api.call("count", {})).text.split()[-1], flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


def test_a_server_dies_with_us_even_if_we_are_killed():
    ours = subprocess.Popen([sys.executable, "-c", _HOLDS_A_SERVER, SERVER], stdout=subprocess.PIPE, text=True)
    pid = int(ours.stdout.readline())
    assert alive(pid)
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    wait_until(lambda: not alive(pid), "the server has ended")


@contextmanager
def started(*options: str) -> Iterator[str]:
    """The SDK's server over HTTP: its address."""
    command = [sys.executable, str(SUPPORT / "mcp_http_server.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module", params=["json", "sse"])
def address(request):
    with started(request.param) as url:
        yield url


async def test_over_http_tools_are_called_with_secrets_by_reference_and_long_answers_refused(address, monkeypatch):
    monkeypatch.setenv("CRM_TOKEN", "s3cret-token")
    async with over_http(address, headers={"x-api-key": "env:CRM_TOKEN"}, max_message=200_000) as api:
        assert [tool.name for tool in await api.tools()] == ["echo", "large", "header"]
        assert (await api.call("echo", {"text": "grüße"})).text == "grüße"
        assert (await api.call("header", {"name": "x-api-key"})).text == "s3cret-token"
        assert len((await api.call("large", {"size": 50_000})).text) == 50_000
        with pytest.raises(LiveApiError):
            await api.call("large", {"size": 1_000_000})


async def test_a_server_that_went_away_and_came_back_is_spoken_to_again():
    with started("json") as url:
        api = over_http(url, timeout=5.0)
        await api.__aenter__()
        assert (await api.call("echo", {"text": "a"})).text == "a"
    with pytest.raises(LiveApiUnavailable):
        await api.call("echo", {"text": "b"})
    with started("json", url.split(":")[2].split("/")[0]):
        assert (await eventually(lambda: api.call("echo", {"text": "c"}))).text == "c"
        await api.aclose()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(Said(status=307, headers={"location": "/elsewhere"}), "", id="redirects are not followed"),
        pytest.param(Said(status=401), "HTTP 401", id="an error has its status"),
        pytest.param(Said(body=b" " * 3_000_000), "", id="a flood"),
        pytest.param(Said(body=b"<html>hello</html>", headers={"content-type": "text/html"}), "", id="no MCP"),
    ],
)
async def test_what_is_no_mcp_server_is_told_so(answer, told):
    with HttpApi(lambda _: answer) as odd:
        async with over_http(f"{odd.url}/mcp", max_message=1_000_000, start_timeout=5.0) as api:
            with pytest.raises(LiveApiError) as caught:
                await api.tools()
        assert told in str(caught.value)
        assert {asked.path for asked in odd.asked} == {"/mcp"}


@pytest.mark.promise
async def test_a_guard_keeps_the_adapter_from_this_machine_and_the_checked_address_is_the_one_connected_to(address):
    """A name that resolves to nothing at all: if it were looked up once more, the connection would fail."""

    class Answers(AddressGuard):
        async def resolve(self, host, port, *, tls):
            assert host == "rebinding.invalid"
            return "127.0.0.1"

    async with over_http(address, guard=AddressGuard()) as api:
        with pytest.raises(LiveApiRefused, match=r"apis\.allow_hosts"):
            await api.tools()
    async with over_http(address.replace("127.0.0.1", "rebinding.invalid"), guard=Answers()) as api:
        name, _, port = (await api.call("header", {"name": "host"})).text.partition(":")
        assert (name, port) == ("rebinding.invalid", address.split(":")[2].split("/")[0])

"""The MCP adapter against a server that misbehaves, as a real child process over real pipes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import structlog.testing

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from actors.system import runtime
from adapters.live.mcp import McpApi, McpSettings
from tests.support.patience import until, wait_until, within
from tests.support.process import alive

pytestmark = pytest.mark.anyio
SERVER = str(Path(__file__).parents[3] / "support" / "bad_mcp_server.py")
both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def server(mode: str = "good", **settings: object) -> McpApi:
    given = {"backoff": 0.01, "grace": 0.2} | settings
    return McpApi(mode, McpSettings(command=(sys.executable, SERVER, mode), **given))


async def eventually(api: McpApi, tool: str):
    """The answer of `tool`, past the pause that follows a death."""
    with anyio.fail_after(within()):
        while True:
            try:
                return await api.call(tool, {})
            except LiveApiUnavailable as error:
                await anyio.sleep(error.retry_after or 0.02)


@both
async def test_answers_errors_and_structured_content_come_as_results():
    async with server() as api:
        echoed = await api.call("echo", {"size": 3})
        assert (json.loads(echoed.text), echoed.error, echoed.source) == ({"size": 3}, False, "live")
        failed = await api.call("fail", {})
        assert (failed.text, failed.error) == ("no such file", True)
        # A JSON-RPC error is the server's no as well.
        assert (await api.call("refuse", {})).error
        shaped = await api.call("shaped", {})
        assert (shaped.structured, shaped.text) == ({"n": 3}, '{"n": 3}')
        with pytest.raises(LiveApiMalformed, match="misshapen"):
            await api.call("misshapen", {})
        pictured = await api.call("picture", {})
        assert pictured.text == "[image/png, 600 bytes, left out]\n[resource file:///a.txt: a.txt]\ntext of b"
        with pytest.raises(LiveApiRefused, match="no tool 'nope'"):
            await api.call("nope", {})


async def test_what_a_server_says_of_itself_is_a_claim_and_unknown_tools_claim_nothing():
    async with server() as api:
        claims = {operation.name: operation.claims_read_only for operation in await api.tools()}
        # The tool that wipes says that it only reads; nothing but a policy can know better.
        assert (claims["wipe"], claims["write"]) == (True, False)
        assert (api.read_only("wipe"), api.read_only("write"), api.read_only("nope")) == (True, False, False)


async def test_long_answers_are_cut_and_say_so():
    async with server(max_text=1000) as api:
        cut = await api.call("large", {"size": 10_000_000})
        assert (len(cut.text), cut.truncated) == (1000, True)
        assert not (await api.call("large", {"size": 900})).truncated


async def test_a_message_beyond_the_limit_ends_the_connection_and_the_next_call_has_another():
    async with server(max_message=100_000) as api:
        with pytest.raises(LiveApiMalformed, match="100,000 bytes"):
            await api.call("large", {"size": 1_000_000})
        assert (await eventually(api, "count")).text.startswith("1 calls")
        assert api.starts == 2


@both
async def test_a_server_that_dies_in_mid_call_is_told_by_its_last_words_and_started_again():
    async with server() as api:
        await api.tools()
        with pytest.raises(LiveApiUnavailable, match="Segmentation fault, more or less"):
            await api.call("die", {})
        assert (await eventually(api, "count")).text.startswith("1 calls")
        assert api.starts == 2


async def test_a_server_that_dies_again_and_again_is_not_started_for_each_call():
    async with server("die_at_start", backoff=60.0) as api:
        for _ in range(20):
            with pytest.raises(LiveApiUnavailable):
                await api.tools()
        assert api.starts == 1
        with pytest.raises(LiveApiUnavailable) as refused:
            await api.tools()
        assert 50 < refused.value.retry_after <= 60


async def test_a_server_that_hangs_at_its_start_is_given_up_and_leaves_no_process():
    async with server("hang_at_start", start_timeout=0.3) as api:
        with pytest.raises(LiveApiUnavailable, match=r"within 0\.3 s"):
            await api.tools()
        assert not children(SERVER, "hang_at_start")


@both
async def test_calls_have_a_deadline_and_a_server_that_answers_none_of_three_is_replaced():
    async with server(timeout=2.0) as api:
        await api.tools()

        async def hang() -> None:
            with pytest.raises(LiveApiUnavailable, match="deadline"):
                await api.call("hang", {})

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(hang)
        await until(lambda: not children(SERVER, "good"), "the server has ended")
        assert (await eventually(api, "count")).text.startswith("1 calls")


async def test_five_hundred_tools_come_over_several_pages():
    async with server("many") as api:
        tools = await api.tools()
        assert (len(tools), len({tool.name for tool in tools}), api.skipped) == (500, 500, 0)
    async with server("many", max_tools=120) as api:
        # Two pages of a hundred were asked for, the rest is not even fetched.
        assert (len(await api.tools()), api.skipped) == (120, 80)
    async with server("endless") as api:
        assert len(await api.tools()) == len({tool.name for tool in await api.tools()})


async def test_colliding_names_are_told_apart_and_called_by_their_own():
    async with server("colliding") as api:
        titles = {operation.title or operation.name: operation.name for operation in await api.tools()}
        assert set(titles) == {"a.b", "a_b", "a/b", "x" * 90 + "1", "x" * 90 + "2"}
        assert len(set(titles.values())) == 5
        assert all(len(name) <= 64 for name in titles.values())
        assert api.skipped == 1  # a.b is listed twice


async def test_changed_tools_are_listed_anew_once_the_server_says_so():
    async with server() as api:
        before = {tool.name for tool in await api.tools()}
        await api.call("more_tools", {})
        assert {tool.name for tool in await api.tools()} - before == {"new_one"}


async def test_the_child_gets_no_environment_but_what_it_needs_and_what_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("OURS", "hunter2")
    (tmp_path / "token").write_text("t0ken\n")
    named = {"TOKEN": f"file:{tmp_path}/token", "MODE": "plain"}
    async with server(environment=named) as api:
        seen = json.loads((await api.call("environment", {})).text)
    assert set(seen) <= {"PATH", "HOME", "LANG", "LC_CTYPE", "TOKEN", "MODE"}  # LC_CTYPE: Python's own (PEP 538)
    assert (seen["TOKEN"], seen["MODE"]) == ("t0ken", "plain")


@pytest.mark.promise
async def test_a_secret_that_the_server_complains_with_is_not_in_logs_or_errors(monkeypatch):
    monkeypatch.setenv("THEIR_PASSWORD", "correct-horse-battery")
    async with server("die_at_start", environment={"SECRET": "env:THEIR_PASSWORD"}) as api:
        with structlog.testing.capture_logs() as logs, pytest.raises(LiveApiUnavailable) as died:
            await api.tools()
    assert "cannot open the database" in str(died.value)
    assert any(log["event"] == "mcp.stderr" for log in logs)
    assert "correct-horse" not in str(died.value) + json.dumps(logs)


async def test_a_secret_that_is_not_there_is_named_and_nothing_is_started():
    async with server(environment={"TOKEN": "env:NO_SUCH_VARIABLE"}) as api:
        with pytest.raises(AdapterNotSetUp, match="NO_SUCH_VARIABLE"):
            await api.tools()


async def test_a_server_that_prints_is_understood_all_the_same():
    async with server("chatty") as api:
        assert await api.tools()


@both
async def test_a_server_that_will_not_go_is_killed():
    async with server("stubborn") as api:
        pid = int((await api.call("count", {})).text.split()[-1])
        assert alive(pid)
    await until(lambda: not alive(pid), "the child has ended")


async def test_many_calls_at_once_get_their_own_answers():
    answers = {}

    async def ask(api: McpApi, number: int) -> None:
        answers[number] = json.loads((await api.call("echo", {"size": number})).text)["size"]

    async with server() as api, anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(ask, api, number)
    assert answers == {number: number for number in range(50)}


async def test_a_command_that_is_not_there_says_so():
    async with McpApi("gone", McpSettings(command=("no-such-server",))) as api:
        with pytest.raises(LiveApiUnavailable, match="no-such-server: No such file"):
            await api.tools()


async def test_an_api_that_was_not_entered_says_how():
    with pytest.raises(LiveApiUnavailable, match="async with"):
        await server().tools()


@pytest.mark.parametrize("backend", ["trio-guest", "asyncio"])
def test_it_runs_where_the_actors_run(backend):
    async def main(host):
        async with server() as api:
            return (await api.call("echo", {"size": 1})).text

    assert runtime.run(main, backend=backend) == '{"size": 1}'


def test_a_server_dies_with_us_even_if_we_are_killed():
    ours = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_A_SERVER, SERVER], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    pid = int(ours.stdout.readline())
    assert alive(pid)
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    wait_until(lambda: not alive(pid), "the server has ended")


def test_settings_want_one_way_in_and_no_secrets():
    with pytest.raises(ValueError, match="give one of them"):
        McpSettings()
    with pytest.raises(ValueError, match="give one of them"):
        McpSettings(command=("a",), url="https://mcp.example.com/mcp")
    with pytest.raises(ValueError, match="env:NAME or file:PATH"):
        McpSettings(url="https://mcp.example.com/mcp", headers={"Authorization": "Bearer abc"})
    with pytest.raises(ValueError, match="password"):
        McpSettings(url="https://me:secret@mcp.example.com/mcp")


def children(*words: str) -> list[int]:
    """Processes below us whose command line has `words`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parts = (path / "cmdline").read_bytes().decode().split("\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if all(word in parts for word in words) and parent == os.getpid() and alive(int(path.name)):
            found.append(int(path.name))
    return found


_HOLDS_A_SERVER = """
import sys, anyio
from adapters.live.mcp import McpApi, McpSettings

async def main():
    async with McpApi("held", McpSettings(command=(sys.executable, sys.argv[1], "stubborn"))) as api:
        print((await api.call("count", {})).text.split()[-1], flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""

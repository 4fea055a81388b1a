"""The pool as users have it: a served control API with a key, the command line, the client, and a real MCP session."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
import structlog
from mcp import Client, ClientSession, StdioServerParameters, stdio_client

from actors.store import Store
from daemon.cli.main import main
from daemon.errors import ControlUnreachable, OrderRefused
from daemon.experience.client import ExperienceClient
from daemon.experience.mcp import server
from daemon.processes.asgi import serve
from daemon.tap.keys import KeyRing, add_key
from tests.support.credited import attributed
from tests.support.databases import opened_store
from tests.support.experience import Desk, lesson, lessons_of
from tests.support.patience import until, within
from tests.support.ports import free_port
from tests.support.process import listens
from tests.support.traffic import exchange

pytestmark = pytest.mark.anyio
POOL = (
    lesson("card", when_to_use="cancel a booking", content="Check how it was paid before you cancel a booking."),
    lesson("trial", when_to_use="cancel a booking", content="Call cancel twice.", state="candidate"),
    lesson("theirs", when_to_use="cancel a booking", content="Another tenant's.", tenant="zeta"),
    lesson(
        "skill", kind="skill", when_to_use="book", content="search, then book", detail={"calls": ["search", "book"]}
    ),
)


class Served:
    """A control API on a port of its own, its key, and the command line that finds both."""

    def __init__(
        self, desk: Desk, store: Store, port: int, key: str, directory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.desk, self.store, self.key, self.directory, self._capsys = desk, store, key, directory, capsys
        self.url = f"http://127.0.0.1:{port}"
        self.key_file = directory / "admin.key"
        self.key_file.write_text(key)
        self.config = directory / "config.toml"
        self.config.write_text(f'[control]\nlisten = "127.0.0.1:{port}"\n')

    async def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run what blocks beside the server."""
        return await anyio.to_thread.run_sync(work, *args)

    async def evolved(self, command: str, status: int = 0) -> str:
        """What a command prints; what it says on standard error if it is to end with another status."""
        words = shlex.split(command)
        self._capsys.readouterr()
        ended = await self.call(main, [words[0], "--config", str(self.config), *words[1:]])
        told = self._capsys.readouterr()
        assert ended == status, told
        return told.err if status else told.out

    async def json(self, command: str) -> Any:
        return json.loads(await self.evolved(f"{command} --json"))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": os.getcwd(), "EVOLVED_URL": self.url, "EVOLVED_KEY_FILE": str(self.key_file),
            "EVOLVED_TENANT": "acme",
        }  # fmt: skip


@pytest.fixture
async def served(
    tmp_path: Path, store_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    key, _ = add_key(tmp_path / "keys.json", tenant="ops", scope="admin", now=0.0)
    monkeypatch.setenv("EVOLVED_KEY_FILE", str(tmp_path / "admin.key"))
    # What the daemon logs is not what the command prints, though both are one process here.
    with structlog.testing.capture_logs():
        async with opened_store(store_url, lambda: 40.0) as store, anyio.create_task_group() as group:
            await store.save(POOL)
            port, desk = free_port(), Desk(store, tmp_path)
            app = desk.app(KeyRing(tmp_path / "keys.json", clock=lambda: 1.0))
            group.start_soon(partial(serve, app, "127.0.0.1", port))
            await until(partial(listens, port), "the control API listens")
            yield Served(desk, store, port, key, tmp_path, capsys)
            group.cancel_scope.cancel()


async def test_a_program_searches_and_is_told_what_to_do_without_key_or_daemon(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in served.environment.items():
        monkeypatch.setenv(name, value)

    def work() -> None:
        with ExperienceClient.from_environment(timeout=within()) as pool:
            found = pool.search("cancel a booking", tenant="acme")
            assert [item["lesson"]["id"] for item in found] == ["card", "skill"][: len(found)]
            assert found[0]["score"] > 0
            assert pool.lesson("card")["lesson"] == found[0]["lesson"]
            everything = pool.search("cancel a booking", tenant="acme", states=None)
            assert "trial" in {item["lesson"]["id"] for item in everything}
            assert [item["lesson"]["id"] for item in pool.lessons(kind="skill")] == ["skill"]
        with ExperienceClient(served.url) as pool, pytest.raises(OrderRefused, match="EVOLVED_KEY_FILE") as caught:
            pool.search("x")
        assert caught.value.status == 401
        away = ExperienceClient(f"http://127.0.0.1:{free_port()}")
        with away as pool, pytest.raises(ControlUnreachable, match="evolved run"):
            pool.search("x")

    await served.call(work)


async def test_the_command_line_looks_and_revises(served: Served) -> None:
    assert "Check how it was" in " ".join((await served.evolved("experience list --tenant acme")).split())
    found = await served.json("experience search 'cancel a booking' --tenant acme --k 1")
    assert [item["lesson"]["id"] for item in found] == ["card"]
    await served.json("experience retire card --reason 'the tool is gone'")
    assert "the tool is gone" in await served.evolved("experience show card")
    await served.evolved("experience activate card --reason 'it is back'")
    assert (await lessons_of(served.store))["card"].revision == 2
    told = await served.evolved("experience release card --reason r", 2)
    assert "the lesson is active; possible: retire" in told


async def test_lessons_are_carried_in_a_file_that_others_cannot_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = served.directory / "lessons.jsonl"
    assert (await served.json(f"experience export --tenant acme --out {file}"))["lessons"] == 3
    assert file.stat().st_mode & 0o077 == 0
    told = await served.evolved(f"experience import {file} --tenant acme=beta --dry-run")
    assert "3 lessons: 3 would be added (0 in quarantine), 0 known" in told
    assert (await served.json(f"experience import {file} --tenant beta --quarantine"))["quarantined"] == 3
    found = await lessons_of(served.store)
    assert sum(item.tenant == "beta" and item.state == "quarantined" for item in found.values()) == 3
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"twice", b"\xff\xff", 1))
    assert "line 4: no UTF-8" in await served.evolved(f"experience import {file} --tenant gamma", 2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(whole)))
    await served.evolved("experience import - --tenant acme=gamma")
    assert "write OLD=NEW" in await served.evolved(f"experience import {file} --tenant =gamma", 2)


async def test_forgetting_from_the_command_line_shows_asks_and_tells(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.store.save([attributed("t", tenant="acme"), exchange("open", 0, tenant="acme")])
    await served.store.save([lesson("card", revision=1, sources=("t",))])
    forget = "forget --tenant acme"
    assert "give a --reason" in await served.evolved(forget, 2)
    told = await served.evolved(f"{forget} --dry-run")
    assert "would go:" in told
    assert "no weights saw it" in told
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # no terminal: nobody agrees
    assert "give --yes; nothing was touched" in await served.evolved(f"{forget} --reason r", 2)
    assert await served.store.trajectory("t") is not None
    gone = await served.json(f"{forget} --reason r --yes")
    assert (gone["trajectories"], gone["exchanges"], gone["lessons"]) == (1, 1, ["card"])
    assert await served.store.trajectory("t") is None
    assert (await lessons_of(served.store))["card"].content == ""
    assert (await served.json(f"{forget} --reason r --yes"))["notice"] == ""


def said(result: Any) -> Any:
    """What a tool answered: its structured content, else its text."""
    assert not result.is_error, result.content
    return result.structured_content["result"] if result.structured_content else json.loads(result.content[0].text)


async def use_the_tools(session: Client | ClientSession) -> None:
    assert {tool.name for tool in (await session.list_tools()).tools} == {"search_experience", "list_skills"}
    found = said(await session.call_tool("search_experience", {"query": "cancel a booking"}))
    assert [item["id"] for item in found][:1] == ["card"]
    assert not {"trial", "theirs"} & {item["id"] for item in found}
    skills = said(await session.call_tool("list_skills", {}))
    assert [(item["id"], item["detail"]) for item in skills] == [("skill", {"calls": ["search", "book"]})]


ARGUMENTS = ["-m", "daemon.cli", "experience", "mcp"]


async def test_an_agent_uses_the_pool_over_mcp_on_standard_input_and_output(served: Served) -> None:
    how = StdioServerParameters(command=sys.executable, args=ARGUMENTS, env=served.environment)
    with anyio.fail_after(within(90)):
        async with stdio_client(how) as (read, write), ClientSession(read, write) as session:
            told = await session.initialize()
            assert told.server_info.name == "evolved"
            assert "never override your" in (told.instructions or "")
            await use_the_tools(session)


@asynccontextmanager
async def over_http(served: Served) -> AsyncIterator[str]:
    """A server on a port of its own; its URL."""
    command = [sys.executable, *ARGUMENTS, "--http", "--port", "0"]
    environment = {**os.environ, **served.environment}
    async with await anyio.open_process(command, env=environment, stderr=None) as process:
        assert process.stdout is not None
        try:
            yield (await process.stdout.receive()).decode().strip()
        finally:
            process.terminate()
            await process.wait()


async def test_an_agent_uses_the_pool_over_mcp_on_http_and_no_page_elsewhere_does(served: Served) -> None:
    with anyio.fail_after(within(90)):
        async with over_http(served) as url:
            assert url.endswith("/mcp")
            async with Client(url) as client:
                await use_the_tools(client)
            async with httpx.AsyncClient() as http:
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                evil = await http.post(url, json=body, headers={"host": "evil.example", "accept": "application/json"})
                assert evil.status_code in (403, 421)


async def test_a_daemon_that_is_away_is_told_to_the_agent_and_ends_nothing() -> None:
    away = ExperienceClient(f"http://127.0.0.1:{free_port()}")
    with anyio.fail_after(within()):
        async with Client(server(away, tenant="acme")) as client:
            for _ in range(2):
                result = await client.call_tool("search_experience", {"query": "x"})
                assert result.is_error
                assert "evolved run" in result.content[0].text


def test_a_missing_package_is_answered_with_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['mcp'] = None\n"
        "from daemon.cli.main import main; sys.exit(main(['experience', 'mcp']))"
    )  # fmt: skip
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=within())
    assert run.returncode == 2
    assert "pip install 'evolved[mcp]'" in run.stderr


@pytest.mark.parametrize(("words", "said"), [("--host 0.0.0.0", "listen on 127.0.0.1"), ("--port {port}", "free one")])
async def test_the_mcp_port_stays_on_this_machine(served: Served, words: str, said: str) -> None:
    port = served.url.rpartition(":")[2]
    assert said in await served.evolved(f"experience mcp --http {words.format(port=port)}", 2)

"""`evolved adapters` against a control API on a real port."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette

from actors.system.lifecycle import Lifecycle, Restart, Unit
from daemon.api.live import LiveRoutes
from daemon.cli.live import order
from daemon.cli.main import main, parser
from daemon.live.registry import Live
from daemon.live.settings import LiveSettings
from tests.support.served import served

SERVER = Path(__file__).parents[3] / "support" / "mcp_http_server.py"


def said(port: str, *words: str) -> int:
    return main(["adapters", "--set", f"control.port={port}", *words])


@pytest.fixture
def evolved(tmp_path: Path) -> Iterator[Callable[..., int]]:
    live = Live({}, LiveSettings(allow_private=("127.0.0.1",)), tmp_path)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(live.run, Lifecycle(Unit("live", live.run, Restart()), anyio.Event(), lambda: None))
            yield
            group.cancel_scope.cancel()

    with served(Starlette(routes=LiveRoutes(live).routes(), lifespan=lifespan)) as url:
        yield partial(said, url.rpartition(":")[2])


def test_add_test_list_and_remove(evolved: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, SERVER, "json"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            assert evolved("add", "docs", "--kind", "mcp", "--url", url, "--read-only", "ec*") == 0
            assert "docs: ok, 3 tools, mode shadow" in capsys.readouterr().out
            assert evolved("test", "docs", "--json") == 0
            tools = json.loads(capsys.readouterr().out)["tools"]
            assert [tool["name"] for tool in tools] == ["echo", "large", "header"]
            assert evolved("list") == 0
            shown = capsys.readouterr().out
            assert "docs" in shown
            assert "adapters.environments.travel:TravelDesk" in shown
            assert (evolved("remove", "docs"), evolved("remove", "docs")) == (0, 2)
            assert "no API 'docs'" in capsys.readouterr().err
        finally:
            server.kill()


def test_what_is_refused_is_said_with_the_remedy(
    evolved: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for words, remedy in (
        (("https://10.0.0.1/mcp",), "live.allow_private"),
        (("http://127.0.0.1:9/mcp", "--header", "authorization=Bearer abc"), "a secret is no setting"),
        (("http://127.0.0.1:9/mcp", "--header", "x"), "write NAME=VALUE"),
    ):
        assert evolved("add", "docs", "--kind", "mcp", "--url", *words) == 2
        assert remedy in capsys.readouterr().err


def test_options_are_put_together() -> None:
    words = ["adapters", "add", "crm", "--kind", "openapi", "--url", "https://crm.example.com/openapi.json"]
    words += ["--key", "bearerAuth=crm-token", "--option", "auth.bearerAuth.kind=bearer", "--option", "timeout=9.5"]
    given = order(parser().parse_args([*words, "--mode", "live", "--allow", "get*"]))
    assert given["options"] == {"auth": {"bearerAuth": {"kind": "bearer", "key_file": "crm-token"}}, "timeout": 9.5}
    assert given["policy"] == {"mode": "live", "allow": ["get*"]}

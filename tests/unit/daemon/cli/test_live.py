"""`evolved adapters` against a control API on a real port."""

import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from starlette.applications import Starlette

from actors.system.lifecycle import Lifecycle, Restart, Unit
from daemon.api.live import LiveRoutes
from daemon.cli.main import main
from daemon.live.registry import Live
from daemon.live.settings import LiveSettings
from daemon.processes.asgi import serve
from daemon.settings.control import ControlSettings
from tests.benchmarks.report import await_port
from tests.support.ports import free_port

SUPPORT = Path(__file__).parents[3] / "support"


class Daemon:
    """Live APIs and their routes in a thread of their own."""

    def __init__(self, state: Path) -> None:
        self.port, self._state = free_port(), state
        self._ready = threading.Event()
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), kwargs={"backend": "trio"})

    def __enter__(self) -> "Daemon":
        self._thread.start()
        assert self._ready.wait(60)
        await_port(self.port)
        return self

    def __exit__(self, *_: object) -> None:
        # At once: its loop is gone a moment later.
        self._token.run_sync_soon(lambda: (self._draining.set(), self._unit.interrupt()))
        self._thread.join(60)

    async def _run(self) -> None:
        import trio

        self._token, self._draining = trio.lowlevel.current_trio_token(), anyio.Event()
        live = Live({}, LiveSettings(allow_private=("127.0.0.1",)), self._state)
        self._unit = Unit("live", live.run, Restart())
        app = Starlette(routes=LiveRoutes(live).routes())
        async with anyio.create_task_group() as group:
            group.start_soon(live.run, Lifecycle(self._unit, self._draining, lambda: None))
            group.start_soon(partial(serve, app, ControlSettings(port=self.port), ready=self._ready.set))
            await self._draining.wait()
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    def evolved(self, *words: str) -> int:
        return main(["adapters", "--set", f"control.port={self.port}", *words])


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as running:
        yield running


def test_add_test_list_and_remove(daemon, capsys):
    server = subprocess.Popen(
        [sys.executable, str(SUPPORT / "mcp_http_server.py"), "json"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().strip()
        assert daemon.evolved("add", "docs", "--kind", "mcp", "--url", url, "--read-only", "ec*") == 0
        assert "docs: ok, 3 tools, mode shadow" in capsys.readouterr().out
        assert daemon.evolved("test", "docs", "--json") == 0
        assert [tool["name"] for tool in json.loads(capsys.readouterr().out)["tools"]] == ["echo", "large", "header"]
        assert daemon.evolved("list") == 0
        shown = capsys.readouterr().out
        assert "docs" in shown
        assert "adapters.environments.travel:TravelDesk" in shown
        assert daemon.evolved("remove", "docs") == 0
        assert daemon.evolved("remove", "docs") == 2
        assert "no API 'docs'" in capsys.readouterr().err
    finally:
        server.kill()
        server.wait()


def test_what_is_refused_is_said_with_the_remedy(daemon, capsys):
    assert daemon.evolved("add", "docs", "--kind", "mcp", "--url", "https://10.0.0.1/mcp") == 2
    assert "live.allow_private" in capsys.readouterr().err
    secret = ("--header", "authorization=Bearer abc")
    assert daemon.evolved("add", "docs", "--kind", "mcp", "--url", "http://127.0.0.1:9/mcp", *secret) == 2
    assert "a secret is no setting" in capsys.readouterr().err
    assert daemon.evolved("add", "docs", "--kind", "mcp", "--url", "http://127.0.0.1:9/mcp", "--header", "x") == 2
    assert "write NAME=VALUE" in capsys.readouterr().err


def test_options_are_put_together(tmp_path):
    from daemon.cli.live import order
    from daemon.cli.main import parser

    words = ["adapters", "add", "crm", "--kind", "openapi", "--url", "https://crm.example.com/openapi.json"]
    words += ["--key", "bearerAuth=crm-token", "--option", "auth.bearerAuth.kind=bearer", "--option", "timeout=9.5"]
    given = order(parser().parse_args([*words, "--mode", "live", "--allow", "get*"]))
    assert given["options"] == {"auth": {"bearerAuth": {"kind": "bearer", "key_file": "crm-token"}}, "timeout": 9.5}
    assert given["policy"] == {"mode": "live", "allow": ["get*"]}

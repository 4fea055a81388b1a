"""`evolved adapters` against a control API on a real port."""

from pathlib import Path

from starlette.applications import Starlette

from daemon.api.live import LiveRoutes
from daemon.cli.live import order
from daemon.cli.main import parser
from daemon.live.registry import Live
from tests.support.served import served
from tests.unit.daemon.cli.conftest import Evolved


def test_what_is_refused_is_said_with_the_remedy(tmp_path: Path, evolved: Evolved) -> None:
    live = Live({}, tmp_path)
    with served(Starlette(routes=LiveRoutes(live).routes())) as url:
        adapters = f"adapters --set control.listen=127.0.0.1:{url.rpartition(':')[2]}"
        add = f"{adapters} add docs --kind mcp --url https://1.1.1.1/mcp"
        for command, remedy in (
            (f"{adapters} remove docs", "no API 'docs'"),
            (add, "live APIs are not running yet"),
            (f"{add} --header x", "write NAME=VALUE"),
        ):
            assert remedy in evolved(command, 2).err


def test_options_are_put_together() -> None:
    words = ["adapters", "add", "crm", "--kind", "openapi", "--url", "https://crm.example.com/openapi.json"]
    words += ["--key", "bearerAuth=crm-token", "--option", "auth.bearerAuth.kind=bearer", "--option", "timeout=9.5"]
    given = order(parser().parse_args([*words, "--mode", "live", "--allow", "get*"]))
    assert given["options"] == {"auth": {"bearerAuth": {"kind": "bearer", "key_file": "crm-token"}}, "timeout": 9.5}
    assert given["policy"] == {"mode": "live", "allow": ["get*"]}

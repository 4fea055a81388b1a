"""What the threat model promises of a process as a whole: its logs, its files, and what it never loads."""

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from daemon.api.control import Control

SERVICE = """
import os, structlog
from pathlib import Path
from daemon.logs import as_service
as_service()
structlog.get_logger("x").warning("refused", goal=os.environ["TEXT"])
state = Path(os.environ["STATE"])
state.mkdir(parents=True)
(state / "file").write_text("what an agent said")
"""


def test_a_service_keeps_a_text_in_its_own_line_of_the_log_and_its_files_for_its_own_user(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    text = 'one\n{"event": "order_given", "kind": "promote"}\r\x1b[2Jtwo\u2028three\x00'
    environment = {**os.environ, "TEXT": text.replace("\x00", ""), "STATE": str(state)}
    ran = subprocess.run(
        [sys.executable, "-c", SERVICE], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    (line,) = ran.stderr.splitlines()
    assert json.loads(line)["event"] == "refused"
    assert "\x1b" not in line
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "file").stat().st_mode) == 0o600


@pytest.mark.anyio
async def test_the_dashboards_files_do_not_lead_out_of_their_directory() -> None:
    control = Control(
        store=None, registry=CollectorRegistry(), actors=tuple, orders=None, retry=str, describe={},
    )  # type: ignore[arg-type]  # no route is asked that needs them  # fmt: skip
    transport = httpx.ASGITransport(control.app(["here"]))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
        for path in ("/../control.py", "/%2e%2e/control.py", "/..%2f..%2fcontrol.py", "//etc/passwd", "/%2fetc/passwd"):
            answer = await http.get(path)
            assert answer.status_code == 404, path
        assert (await http.get("/")).status_code == 200


LOADERS = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def test_nothing_of_ours_loads_what_could_run_code(request: pytest.FixtureRequest) -> None:
    """No pickle and no `torch.load`; that there is no shell and no `eval` is the linter's to say."""
    found: list[str] = []
    for package in ("actors", "adapters", "daemon", "learner"):
        for path in (request.config.rootpath / package).rglob("*.py"):
            where = path.relative_to(request.config.rootpath)
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Import(names=names) if {name.name.partition(".")[0] for name in names} & LOADERS:
                        found.append(f"{where}:{node.lineno}")
                    case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in LOADERS:
                        found.append(f"{where}:{node.lineno}")
                    case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")):
                        found.append(f"{where}:{node.lineno}")
                    case _:
                        pass
    assert found == []

"""What the threat model promises of a process as a whole: its logs, its files, and what it never loads."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

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


LOADS = re.compile(
    r"^\s*(import|from) (pickle|cPickle|dill|joblib|shelve|marshal|cloudpickle)\b|\btorch\.load\(", re.MULTILINE
)


def test_nothing_of_ours_loads_what_could_run_code(request: pytest.FixtureRequest) -> None:
    """No pickle and no `torch.load`; that there is no shell and no `eval` is the linter's to say."""
    root = request.config.rootpath
    modules = [
        path for package in ("actors", "adapters", "daemon", "learner") for path in (root / package).rglob("*.py")
    ]
    assert len(modules) > 100
    assert [path for path in modules if LOADS.search(path.read_text())] == []

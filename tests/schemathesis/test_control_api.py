"""schemathesis, from an environment of its own, against a running control API: calls of every kind that its document
allows, and many that it does not. No call may end in an error of ours, or in an answer that the document does not have.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from daemon.api.openapi import DESCRIBED
from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.process import Process, run

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv-schemathesis" / "bin" / "st"
_LEFT_OUT = "positive_data_acceptance"
"""An order for a version that is not there fits the schema and is refused all the same, with a 422 that says why."""


@pytest.mark.timeout(within(400))
def test_the_control_api_does_what_its_document_says(tmp_path: Path) -> None:
    assert PROGRAM.exists(), "run `make test-schemathesis`"
    port, report = free_port(), tmp_path / "report.json"
    url = f"http://127.0.0.1:{port}/api/openapi.json"
    command = [sys.executable, "-m", "tests.browser.server", str(port), str(tmp_path), "full"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Process(command, tmp_path / "server.log", cwd=ROOT, env=environment) as server:
        server.until_answers(url)
        done = run(
            [
                PROGRAM, "run", url, "--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "1",
                "--no-shrink", "--exclude-checks", _LEFT_OUT, "--report", "json", "--report-json-path", report,
            ],
            240, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    told = json.loads(report.read_text())
    # All but the document itself, with which it begins.
    assert told["operations"]["tested"] == len(DESCRIBED) - 1
    assert told["test_cases"]["generated"] >= 500
    assert (told["complete"], told["failures"], told["errors"]) == (True, [], [])
    assert "Traceback" not in server.log.read_text()

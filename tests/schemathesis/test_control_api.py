"""schemathesis, from an environment of its own, against a running control API: calls of every kind that its document
allows, and many that it does not. No call may end in an error of ours, or in an answer that the document does not have.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from daemon.api.openapi import DESCRIBED
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv-schemathesis" / "bin" / "st"
PATIENCE = 60.0
_LEFT_OUT = "positive_data_acceptance"
"""An order for a version that is not there fits the schema and is refused all the same, with a 422 that says why."""


class SchemathesisMissing(RuntimeError):
    """Its environment is not there."""


@pytest.mark.timeout(300)
def test_the_control_api_does_what_its_document_says(tmp_path: Path) -> None:
    if not PROGRAM.exists():
        raise SchemathesisMissing("run `make test-schemathesis`")
    port, log = free_port(), tmp_path / "server.log"
    url = f"http://127.0.0.1:{port}/api/openapi.json"
    command = [sys.executable, "-m", "tests.schemathesis.server", str(port), str(tmp_path)]
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(url):
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.1)
        report = tmp_path / "report.json"
        run = subprocess.run(
            [
                PROGRAM, "run", url, "--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "1",
                "--no-shrink", "--exclude-checks", _LEFT_OUT, "--report", "json", "--report-json-path", report,
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
    finally:
        server.terminate()
        server.wait(10)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    told = json.loads(report.read_text())
    # All but the document itself, with which it begins.
    assert told["operations"]["tested"] == len(DESCRIBED) - 1
    assert told["test_cases"]["generated"] >= 500
    assert (told["complete"], told["failures"], told["errors"]) == (True, [], [])
    assert "Traceback" not in log.read_text()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False

"""Processes that run for long look for garbage seldom, and not among their modules."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installation import Installation


@pytest.mark.parametrize(("command", "where"), [("run", "daemon.composition.service"), ("tap", "daemon.tap.process")])
def test_what_a_process_starts_with_is_not_looked_through(command: str, where: str, tmp_path: Path) -> None:
    program = f"""
import gc, sys
import {where} as process
from daemon.cli.main import main

def loop(*_: object) -> int:
    print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0] > 10_000)
    sys.exit()

process.{"runtime.run" if command == "run" else "uvloop.run"} = loop
main(sys.argv[1:])
"""
    config = Installation(tmp_path).file
    run = subprocess.run(
        [sys.executable, "-c", program, command, "--config", str(config)], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "True True\n", run.stderr

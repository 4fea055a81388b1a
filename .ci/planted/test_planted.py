"""Tests that fail on purpose: `suites.py prove` runs them, and looks what the runner says of each."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ONCE = Path(os.environ["EVOLVED_PLANTED"])
"""A folder where a test leaves word that it has run."""


def first_time(name: str) -> bool:
    """Whether nobody has asked for `name` before."""
    here = ONCE / name
    before = here.exists()
    here.touch()
    return not before


def test_passes() -> None:
    assert ONCE.is_dir()


def test_fails_always() -> None:
    assert first_time("never") is None


def test_is_late_once() -> None:
    if first_time("late"):
        raise TimeoutError("not within 60 s: an answer")


@pytest.mark.promise
def test_breaks_a_promise_once() -> None:
    assert not first_time("promise"), "1 call lost"


@pytest.mark.promise
def test_is_late_with_a_promise_once() -> None:
    if first_time("late promise"):
        raise ConnectionResetError("connection lost")


@pytest.mark.timeout(2)
def test_hangs_in_c() -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)


@pytest.mark.timeout(2)
def test_hangs_in_python_once() -> None:
    while first_time("hang"):
        signal.pause()


def test_leaves_a_child_that_ignores_sigterm() -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(3600)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    child.terminate()

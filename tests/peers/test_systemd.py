"""The units as systemd reads them: no complaint, and hardened as far as its own table goes."""

import subprocess
from pathlib import Path

import pytest

from daemon.settings.reading import load
from daemon.upkeep import install

WANTED = 2.0
"""systemd-analyze's exposure level: 0 is locked away, 10 is everything; below 2 it says OK."""


@pytest.fixture(scope="module")
def units(tmp_path_factory) -> Path:
    """Directory with all units, filled in as `evolved install` does it, with a program that exists."""
    root, settings = tmp_path_factory.mktemp("root"), install.example()
    todo = install.plan(load(settings), settings.read_bytes(), install.UNITS, Path("/usr/bin/env"))
    install.install(todo, root)
    return root / install.SYSTEM


def test_systemd_finds_nothing_to_complain_about(units: Path) -> None:
    files = sorted(str(path) for path in units.iterdir())
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(files) == 2 + 1 + len(install.UNITS)


@pytest.mark.parametrize("unit", install.UNITS)
def test_every_service_is_hardened(units: Path, unit: str) -> None:
    path = units / install.service(unit)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", f"--threshold={int(WANTED * 10)}", "--no-pager", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout.strip().splitlines()[-1]
    print(said)
    assert done.returncode == 0, said

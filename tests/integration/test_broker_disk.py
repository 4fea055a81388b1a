"""A broker whose disk takes no bytes for a while: nothing confirmed is lost, and it goes on by itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import within

CHILD = Path(__file__).with_name("broker_disk_child.py")


@pytest.mark.parametrize("how", ["full", "immutable"])
def test_a_broker_whose_disk_took_no_bytes_goes_on_without_hands(tmp_path: Path, how: str) -> None:
    if how == "immutable" and (os.geteuid() != 0 or shutil.which("chattr") is None):
        pytest.skip("root and chattr are needed")
    own = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "--propagation", "private"]
    done = subprocess.run(
        [*own, sys.executable, CHILD, tmp_path, how],
        capture_output=True, text=True, check=False, timeout=within(), env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "goes on" in done.stdout

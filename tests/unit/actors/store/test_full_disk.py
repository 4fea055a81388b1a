"""A disk that fills up under the store: nothing that was confirmed is lost, and it goes on when there is room again."""

import os
import subprocess
import sys
from pathlib import Path

CHILD = Path(__file__).with_name("full_disk_child.py")


def test_on_a_full_disk_writes_wait_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    # A mount namespace of its own: the file system is seen by the child alone and gone with it.
    done = subprocess.run(
        ["unshare", "-m" if os.geteuid() == 0 else "-rm", "--propagation", "private", sys.executable, CHILD, tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sound" in done.stdout

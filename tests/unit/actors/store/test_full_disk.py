"""A disk that fills up under the store: nothing that was confirmed is lost, and it goes on when there is room again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.store import Store, StoreUnavailable
from actors.store.database import Database
from actors.store.settings import StoreSettings
from tests.support.traffic import exchange

pytestmark = pytest.mark.promise

CHILD = Path(__file__).with_name("full_disk_child.py")


def test_on_a_full_disk_writes_wait_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    # A mount namespace of its own: the file system is seen by the child alone and gone with it.
    done = subprocess.run(
        ["unshare", "-m" if os.geteuid() == 0 else "-rm", "--propagation", "private", sys.executable, CHILD, tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sound" in done.stdout


@pytest.mark.anyio
async def test_a_damaged_file_is_waited_out_and_says_what_to_do(tmp_path: Path) -> None:
    """An error of another kind would count as the fault of the record in hand, and park it."""
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 1000.0)
    await store.open()
    await store.save([exchange("a", number, request=b"x" * 20_000) for number in range(40)])
    await store.aclose()
    path = tmp_path / "evolved.db"
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(data)
    database = Database(f"sqlite:///{path}", StoreSettings())
    with pytest.raises(StoreUnavailable, match="evolved db restore"):
        await database.read(lambda connection: connection.exec_driver_sql("SELECT * FROM exchanges").fetchall())
    await database.aclose()

"""The converter's child: the same batches as in a thread, and what happens when it dies, hangs or is poisoned."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.system.actor import DeadLetter
from daemon.ingest.conversion import DEAD_SPOOL, Load
from daemon.ingest.converter import Converter, ConverterEnded
from daemon.tap.segments import Position
from daemon.tap.spool_reader import SpoolReader
from tests.support.patience import wait_until
from tests.support.process import alive
from tests.unit.daemon.ingest.test_shipper import QUICK, InThread, Rig, call, key, spool

pytestmark = pytest.mark.anyio
POISON = b"poison"
POISONED = (
    sys.executable,
    "-c",
    f"""
import os, socket, sys
from daemon.ingest import conversion, converter_process

plain = conversion.convert

def convert(key, payload):
    if {POISON!r} in payload:
        os._exit(9)
    return plain(key, payload)

conversion.convert = convert
with socket.socket(fileno=int(sys.argv[1])) as link:
    converter_process.serve(link)
""",
)
"""The child as it ships, but that one record in particular ends it."""
SILENT = (
    sys.executable,
    "-c",
    "import sys, time, socket; link = socket.socket(fileno=int(sys.argv[1])); time.sleep(60)",
)


def load(directory: Path, position: Position | None = None, limit: int = 100) -> Load:
    return Load(str(directory), position or SpoolReader(directory).position, limit, 1 << 20)


@pytest.fixture
def child() -> Iterator[Converter]:
    child = Converter()
    yield child
    child.close()


async def test_a_child_gives_the_batches_that_a_thread_would_give(tmp_path: Path, child: Converter) -> None:
    spool(tmp_path, *(call(number) for number in range(7)), b"no record")
    thread, position, ids = InThread(), None, []
    while True:
        batch = await child.load(load(tmp_path, position, 3))
        assert batch == await thread.load(load(tmp_path, position, 3))
        if not batch.items:
            break
        position = batch.after
        ids += [item.id for item in batch.items]
    assert ids == [*(f"traffic.exchange:{key(number)}" for number in range(7)), f"{DEAD_SPOOL}:{key(7)}"]
    spool(tmp_path, call(8), first=8)
    assert len((await child.load(load(tmp_path, position))).items) == 1, "after an empty batch"


async def test_a_child_that_is_killed_costs_one_error_and_no_record(tmp_path: Path, child: Converter) -> None:
    spool(tmp_path, call(0), call(1))
    whole = await child.load(load(tmp_path))
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ConverterEnded, match="converter process"):
        await child.load(load(tmp_path))
    # One by one, in case that one of them was what it died of.
    one = await child.load(load(tmp_path))
    two = await child.load(load(tmp_path, one.after))
    assert [*one.items, *two.items] == whole.items


async def test_a_child_that_hangs_is_given_up_and_draining_does_not_wait_for_it(tmp_path: Path) -> None:
    spool(tmp_path, call(0))
    child = Converter(silence_seconds=1.0, command=SILENT)
    with pytest.raises(ConverterEnded, match="no answer for 1 s"):
        await child.load(load(tmp_path))
    assert child.pid is None
    child = Converter(silence_seconds=30.0, command=SILENT)
    with anyio.fail_after(25), anyio.move_on_after(1.0):
        await child.load(load(tmp_path))
    assert child.pid is None


async def test_a_record_that_children_die_of_becomes_a_dead_letter_and_holds_up_no_other(tmp_path: Path) -> None:
    spool(tmp_path, call(0), call(1), POISON, call(3))
    made: list[Converter] = []

    def loader() -> Converter:
        made.append(Converter(command=POISONED))
        return made[-1]

    rig = Rig(tmp_path, pace=QUICK, loader=loader)
    async with rig.running():
        await rig.published(4)
        pid = made[0].pid
    published = {item.id: item for item in rig.bus.published}
    assert sorted(published) == sorted(
        [f"{DEAD_SPOOL}:{key(2)}", *(f"traffic.exchange:{key(number)}" for number in (0, 1, 3))]
    )
    letter = msgspec.msgpack.decode(published[f"{DEAD_SPOOL}:{key(2)}"].data, type=DeadLetter)
    assert (letter.data, "ended over it" in letter.error) == (POISON, True)
    # In a batch, alone, and alone again.
    assert rig.figure("evolved_shipper_converter_ends_total") == 3
    assert made[0].pid is None
    assert pid is None or not alive(pid), "it ends with the shipper"


def test_the_child_ends_with_the_daemon_even_by_sigkill(tmp_path: Path) -> None:
    spool(tmp_path, call(0))
    code = f"""
import anyio, sys, time
from pathlib import Path
from daemon.ingest.converter import Converter
from tests.unit.daemon.ingest.test_converter import load
child = Converter()
anyio.run(child.load, load(Path({str(tmp_path)!r})))
print(child.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not alive(pid), "the child has ended")

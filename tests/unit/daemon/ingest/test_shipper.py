"""From spool to bus: every record once, in order, whatever the bus does meanwhile; the cursor never runs ahead.

That what comes again after a crash counts once: `tests/chaos/test_pipeline.py`.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from actors.messages import Exchange, Feedback, decode, encode
from actors.system.errors import BusMisconfigured
from actors.system.lifecycle import Lifecycle
from daemon.ingest.shipper import Shipper, shipper_figures
from daemon.tap.spool import Record, SpoolReader, SpoolWriter, read_cursor, segments
from tests.support.patience import until, within
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.system.patience.FIRST_WAIT", 0.002)
    monkeypatch.setattr("daemon.ingest.shipper._POLL_SECONDS", 0.002)
    monkeypatch.setattr("daemon.ingest.shipper._LIST_SECONDS", 0.01)
    monkeypatch.setattr("daemon.ingest.shipper._AGAIN_SECONDS", 0.05)


def key(number: int) -> str:
    return f"{number:032x}"


def call(number: int) -> bytes:
    return encode(
        Exchange(
            id=key(number), endpoint="/v1/chat/completions", request=b"{}", response=b'{"id": "r"}', response_id="r",
            status=200, started=1.0, duration=1.0,
        )
    )  # fmt: skip


def spool(directory: Path, *payloads: bytes, first: int = 0) -> None:
    writer = SpoolWriter(directory)
    assert writer.append([Record(bytes.fromhex(key(number)), one) for number, one in enumerate(payloads, first)])
    writer.close()


class Rig:
    """A shipper on a stub bus."""

    def __init__(self, base: Path) -> None:
        self.bus, self.life = StubBus(), Lifecycle("shipper")
        self.shipper = Shipper(base, self.bus, rng=random.Random(1))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.shipper.run, self.life)
            yield
            self.life.drain()

    async def published(self, number: int) -> list:
        await until(lambda: len(self.bus.published) >= number, f"{number} messages are published", every=0.002)
        return self.bus.published

    def figure(self, name: str) -> float:
        samples = [sample for metric in shipper_figures(self.shipper) for sample in metric.samples]
        return next(sample.value for sample in samples if sample.name == name)


async def test_records_become_messages_under_their_own_ids_also_those_that_come_later(tmp_path: Path) -> None:
    feedback = Feedback(id=key(1), received=3.0, response_id="r", outcome=1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        await anyio.sleep(0.02)
        spool(tmp_path / "0", call(0))
        await rig.published(1)
        spool(tmp_path / "1", encode(feedback), first=1)
        exchange, said = await rig.published(2)
        cursor = tmp_path / "1" / "cursor"
        await until(cursor.exists, "it is remembered")
        written = cursor.stat().st_mtime_ns
        await anyio.sleep(0.02)
        assert cursor.stat().st_mtime_ns == written, "while nothing comes, nothing is written"
    assert (exchange.subject, exchange.id) == ("traffic.exchange", f"traffic.exchange:{key(0)}")
    assert decode(exchange.data).response_id == "r"
    assert (said.subject, decode(said.data)) == ("traffic.feedback", feedback)
    assert rig.figure("evolved_shipper_records_total") == 2


@pytest.mark.promise
@pytest.mark.parametrize("ends", [True, False], ids=["draining during an outage", "after it"])
async def test_the_cursor_moves_only_over_what_the_bus_has(tmp_path: Path, ends: bool) -> None:
    spool(tmp_path / "0", call(0), call(1))
    rig = Rig(tmp_path)
    rig.bus.down = True
    with anyio.fail_after(within()):
        async with rig.running():
            await until(lambda: rig.figure("evolved_shipper_waits_total"), "it waits", every=0.002)
            assert rig.life.status == "waiting"
            assert read_cursor(tmp_path / "0").segment == ""
            rig.bus.down = ends
            if not ends:
                await rig.published(2)
                assert rig.life.status == "ready"
    assert len(SpoolReader(tmp_path / "0").read()) == (2 if ends else 0)


async def test_what_is_no_message_goes_to_who_reads_the_calls_and_does_not_stop_the_others(tmp_path: Path) -> None:
    spool(tmp_path / "0", b"\x00 no message", call(1))
    rig = Rig(tmp_path)
    async with rig.running():
        strange, exchange = await rig.published(2)
    assert (strange.subject, strange.id, strange.data) == (
        "traffic.exchange", f"traffic.exchange:{key(0)}", b"\x00 no message",
    )  # fmt: skip
    assert decode(exchange.data).id == key(1)


async def test_the_replay_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.ingest.shipper.BATCH", 10)
    monkeypatch.setattr("daemon.ingest.shipper.RECORDS_PER_SECOND", 200.0)
    spool(tmp_path / "0", *(call(number) for number in range(40)))
    rig = Rig(tmp_path)
    began = anyio.current_time()
    async with rig.running():
        await rig.published(40)
    assert anyio.current_time() - began >= 0.14


@pytest.mark.promise
async def test_what_a_broker_confirmed_and_lost_is_published_again(tmp_path: Path) -> None:
    spool(tmp_path / "0", call(0), call(1), call(2))
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.published(3)
        rig.bus.lose("traffic.exchange", 2)
        spool(tmp_path / "0", call(3), first=3)
        published = await rig.published(6)
    assert [item.id[-1] for item in published] == ["0", "1", "2", "3", "1", "2"]
    assert rig.figure("evolved_shipper_replays_total") == 1
    assert SpoolReader(tmp_path / "0").read() == []


@pytest.mark.promise
async def test_a_loss_is_not_forgotten_by_a_disk_that_fails_when_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool(tmp_path / "0", call(0), call(1), call(2))
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.published(3)
        monkeypatch.setattr(SpoolReader, "rewind", Mock(side_effect=OSError("read-only")))
        rig.bus.lose("traffic.exchange", 2)
        spool(tmp_path / "0", call(3), first=3)
        await until(lambda: rig.figure("evolved_shipper_failures_total") > 1, "it is tried again", every=0.002)
        monkeypatch.undo()
        published = await rig.published(6)
    assert [item.id[-1] for item in published] == ["0", "1", "2", "3", "1", "2"]


@pytest.mark.promise
async def test_a_tap_whose_directory_fails_holds_up_nobody_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool(tmp_path / "0", call(0))
    spool(tmp_path / "1", call(1), first=1)
    read = SpoolReader.read

    def fails(reader: SpoolReader, *limits: int) -> list[Record]:
        if reader.directory.name == "0":
            raise PermissionError(13, "Permission denied")
        return read(reader, *limits)

    monkeypatch.setattr(SpoolReader, "read", fails)
    rig = Rig(tmp_path)
    with capture_logs() as logs:
        async with rig.running():
            assert [item.id[-1] for item in await rig.published(1)] == ["1"]
            await until(lambda: rig.figure("evolved_shipper_failures_total") > 1, "it is tried again", every=0.002)
            monkeypatch.setattr(SpoolReader, "read", read)
            assert [item.id[-1] for item in await rig.published(2)] == ["1", "0"]
    named = [(one["event"], one["spool"]) for one in logs if one["event"].startswith("spool_")]
    assert named == [("spool_unusable", str(tmp_path / "0")), ("spool_usable", str(tmp_path / "0"))]


async def test_a_loss_while_the_shipper_was_down_is_found_at_its_first_record(tmp_path: Path) -> None:
    spool(tmp_path / "0", call(0), call(1))
    first, second = Rig(tmp_path), Rig(tmp_path)
    async with first.running():
        await first.published(2)
    # The second broker is as empty as one whose disk is new.
    spool(tmp_path / "0", call(2), first=2)
    async with second.running():
        published = await second.published(3)
    assert [item.id[-1] for item in published] == ["2", "0", "1"]


async def test_a_segment_that_ended_while_nothing_came_goes_once_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.ingest.shipper._SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("daemon.ingest.shipper._KEEP_SECONDS", 0.0)
    writer, rig = SpoolWriter(tmp_path / "0"), Rig(tmp_path)
    assert writer.append([Record(bytes.fromhex(key(0)), call(0))])
    (first,) = segments(tmp_path / "0")
    async with rig.running():
        await rig.published(1)
        monkeypatch.setattr("daemon.tap.spool._SEGMENT_SECONDS", 0.0)
        writer.tend()
        await until(lambda: first not in segments(tmp_path / "0"), "what was published is deleted", every=0.002)


async def test_a_bus_without_the_streams_is_not_waited_for(tmp_path: Path) -> None:
    spool(tmp_path / "0", call(0))
    rig = Rig(tmp_path)
    rig.bus = rig.shipper._bus = StubBus(streams=())
    with pytest.raises(BusMisconfigured):
        await rig.shipper.run(rig.life)

"""The spool gives back what was offered, in order, whatever happened to its tail, and never gets in the way."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemon.tap import spool_reader
from daemon.tap.segments import (
    FRAME_BYTES,
    HEAD_BYTES,
    OTLP,
    Cursor,
    frame,
    read_cursor,
    segment_numbers,
    segment_path,
)
from daemon.tap.spool import SpoolLimits, SpoolWriter
from daemon.tap.spool_reader import SpoolReader
from tests.support.full_disk import full_disk
from tests.support.patience import wait_until, within

pytestmark = pytest.mark.promise
QUICK = {"tick_seconds": 0.001, "sync_seconds": 0.001, "retry_seconds": 0.01}


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def started(directory: Path, *payloads: bytes, **limits: object) -> SpoolWriter:
    """A writer that runs and was offered `payloads`."""
    writer = SpoolWriter(directory, SpoolLimits(**{**QUICK, **limits}))
    writer.start()
    for number, payload in enumerate(payloads):
        assert writer.offer(key(number), payload)
    return writer


def write(directory: Path, *payloads: bytes) -> None:
    started(directory, *payloads).close(within())


def payloads(reader: SpoolReader, limit: int = 1000) -> list[bytes]:
    return [record.payload for record in reader.read(limit)]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_records_come_in_order_and_again_until_they_are_committed(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two", b"six")
    first = SpoolReader(tmp_path)
    assert first.lag_bytes() == HEAD_BYTES + 3 * (FRAME_BYTES + 3)
    found = first.read(limit=2)
    assert [(record.id, record.payload) for record in found] == [(key(0), b"one"), (key(1), b"two")]
    assert first.lag_bytes() == FRAME_BYTES + 3
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two", b"six"]
    first.commit(found[-1].after)
    assert payloads(SpoolReader(tmp_path)) == [b"six"]


@pytest.mark.parametrize(
    ("cursor", "kept"),
    [(b'{"segment": 7, "offset": 99}', Cursor(7, 99)), (b"\x00\x00", Cursor())],
    ids=["of segments that were removed", "unreadable"],
)
def test_whatever_the_cursor_says_new_records_are_behind_it(tmp_path: Path, cursor: bytes, kept: Cursor) -> None:
    tmp_path.joinpath("cursor").write_bytes(cursor)
    write(tmp_path, b"one")
    assert read_cursor(tmp_path) == kept
    assert payloads(SpoolReader(tmp_path)) == [b"one"]


# -- damage ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    records=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8),
    cut=st.integers(min_value=0, max_value=200),
    junk=st.one_of(st.just(b""), st.just(b"\0" * 64), st.binary(max_size=64)),
)
@example(records=[b"EVSPOOL2"], cut=0, junk=b"")
def test_a_torn_tail_costs_only_the_records_in_it(
    tmp_path_factory, records: list[bytes], cut: int, junk: bytes
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    write(directory, *records)
    path = segment_path(directory, 0)
    data = path.read_bytes()
    kept = max(0, len(data) - cut)
    path.write_bytes(data[:kept] + junk)
    ends = [HEAD_BYTES + sum(FRAME_BYTES + len(one) for one in records[: n + 1]) for n in range(len(records))]
    whole = [record for record, end in zip(records, ends, strict=True) if end <= kept]
    reader = SpoolReader(directory)
    assert payloads(reader)[: len(whole)] == whole
    write(directory, b"after the crash")
    assert payloads(reader)[-1:] == [b"after the crash"]


@settings(max_examples=150)
@given(
    records=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6),
    where=st.floats(min_value=0, max_value=1, exclude_max=True),
    bit=st.integers(min_value=0, max_value=7),
    live=st.booleans(),
)
def test_a_flipped_bit_anywhere_costs_one_record_at_most_and_no_wait(
    tmp_path_factory, records: list[bytes], where: float, bit: int, live: bool
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    write(directory, *records)
    path = segment_path(directory, 0)
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    path.write_bytes(data)
    if not live:
        write(directory, b"after")
    found = payloads(SpoolReader(directory))
    last = [] if live else [b"after"]
    wholes = [[*records, *last]] + [[*records[:at], *records[at + 1 :], *last] for at in range(len(records))]
    assert found in wholes


FORGED = frame(key(9), b"forged", b"guessed!") * 3


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "found", "torn"),
    [
        (lambda data: flip(data, data.index(b"one")), [FORGED, b"two"], 1),
        (lambda data: flip(data, data.index(FORGED) - 22), [b"one", b"two"], 1),
        (lambda data: data + b"\x05\x00\x00", [b"one", FORGED, b"two"], 0),
        (lambda data: data[HEAD_BYTES:], [], 0),
    ],
    ids=["a payload", "the length before a payload of forged records", "half a record at the end", "no head"],
)
def test_damage_is_passed_over_and_counted_and_keeps_no_reader_busy(
    tmp_path: Path, damage: Callable[[bytes], bytes], found: list[bytes], torn: int
) -> None:
    write(tmp_path, b"one", FORGED, b"two")
    path = segment_path(tmp_path, 0)
    path.write_bytes(damage(path.read_bytes()))
    reader = SpoolReader(tmp_path)
    assert (payloads(reader), reader.torn) == (found, torn)
    assert (payloads(reader), reader.ready()) == ([], False)
    write(tmp_path, b"after")
    assert payloads(reader) == [b"after"]


def test_a_record_that_is_written_to_its_end_while_it_is_read_is_not_torn(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, b"one", b"two" * 1000, b"three")
    path = segment_path(tmp_path, 0)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"two") + 30])
    look = spool_reader._record

    def before_the_rest_came(*where: object) -> object:
        found = look(*where)
        path.write_bytes(whole)
        return found

    reader = SpoolReader(tmp_path)
    assert payloads(reader, limit=1) == [b"one"]
    monkeypatch.setattr(spool_reader, "_record", before_the_rest_came)
    assert (payloads(reader), reader.torn) == ([b"two" * 1000, b"three"], 0)


# -- limits and disks that fail ----------------------------------------------------------------------------------------


def test_memory_is_bounded_and_what_is_shed_or_left_at_the_end_is_counted(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = SpoolWriter(place, SpoolLimits(**QUICK, memory_bytes=100))
    assert writer.offer(key(0), b"x" * 60)
    assert not writer.offer(key(1), b"x" * 60)
    assert (writer.waiting, writer.waiting_bytes, writer.shed) == (1, 84, 1)
    writer.start()
    writer.close(within())
    assert writer.shed == 2


def test_the_disk_quota_sheds_and_lets_in_again_once_there_is_room(tmp_path: Path) -> None:
    writer = started(tmp_path, disk_bytes=1000, segment_bytes=100)
    for number in range(30):
        writer.offer(key(number), b"x" * 80)
        wait_until(lambda n=number: writer.written + writer.shed == n + 1, "it is written or shed", every=0.002)
    assert not writer.taking
    assert 0 < writer.written < 30
    assert len(segment_numbers(tmp_path)) > 1, "a segment ends at its size"
    assert len(payloads(SpoolReader(tmp_path))) == writer.written
    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 1000
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    wait_until(lambda: writer.taking, "there is room again")
    assert writer.offer(key(99), b"again")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path))[-1] == b"again"


def test_all_taps_of_a_machine_and_telemetry_share_the_quota(tmp_path: Path) -> None:
    limits, record = SpoolLimits(disk_bytes=1000, segment_bytes=100), [(key(0), b"x" * 80)]
    first, second, third = (SpoolWriter(tmp_path / place, limits) for place in ("0", "1", OTLP))
    assert all(first.append(record) for _ in range(3))
    assert second.append(record)
    while second.append(record):
        assert second.written < 10
    assert not third.append(record)
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.seg")) <= 1000


def test_a_broken_spool_keeps_records_in_memory_until_it_works_again(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = started(place, b"one")
    wait_until(lambda: not writer.taking, "a write has failed")
    assert writer.offer(key(1), b"two"), "memory still takes it"
    place.unlink()
    wait_until(lambda: writer.written == 2 and writer.taking, "both are written")
    shutil.rmtree(place)  # made again, though the writer has its segment open
    writer.offer(key(2), b"three")
    writer.close(within())
    assert payloads(SpoolReader(place)) == [b"three"]


def test_a_full_disk_loses_nothing_that_memory_holds_and_doubles_nothing_once_there_is_room(tmp_path: Path) -> None:
    records = [bytes([number]) * 5000 for number in range(40)]
    with full_disk(64_000):
        writer = started(tmp_path, *records)
        wait_until(lambda: writer.errors >= 3, "it has tried again")
        assert not writer.taking
        before = payloads(SpoolReader(tmp_path))
        assert before == records[: len(before)]
    wait_until(lambda: writer.written == len(records), "all are written")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path)) == records
    assert writer.shed == 0


def test_a_disk_that_cannot_keep_what_was_written_is_told_of_as_a_loss(tmp_path: Path, monkeypatch) -> None:
    writer = started(tmp_path, b"one")
    wait_until(lambda: writer.safe == 1, "the first is safe")
    keep = os.fdatasync

    def fails_once(file: int) -> None:
        monkeypatch.setattr(os, "fdatasync", keep)
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fdatasync", fails_once)
    writer.offer(key(1), b"two")
    wait_until(lambda: writer.errors == 1 and writer.healthy, "it goes on")
    assert (writer.written, writer.safe, writer.shed_disk) == (1, 1, 1)
    writer.offer(key(2), b"three")
    writer.close(within())
    assert segment_numbers(tmp_path) == [0, 1]
    assert payloads(SpoolReader(tmp_path))[-1] == b"three"


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    first = started(tmp_path, b"one")
    wait_until(lambda: first.written == 1, "the first has written")
    second = started(tmp_path, b"two")
    wait_until(lambda: not second.healthy, "the second has tried")
    assert segment_numbers(tmp_path) == [0]
    first.close(within())
    wait_until(lambda: second.written == 1, "the second has written")
    second.close(within())
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_the_spool_is_for_its_owner_alone(tmp_path: Path) -> None:
    write(tmp_path / "spool", b"one")
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0
    assert segment_path(tmp_path / "spool", 0).stat().st_mode & 0o077 == 0


# -- what is published -------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A spool of three segments with a record each."""
    for text in (b"one", b"two", b"six"):
        write(tmp_path, text)
    return tmp_path


def test_published_segments_are_kept_for_a_while_and_then_removed_whatever_the_time_of_day_does(three: Path) -> None:
    passed = [0.0]
    reader = SpoolReader(three, keep_seconds=300, monotonic=lambda: passed[0])
    last = reader.read()[-1].after
    passed[0] = 1000.0
    assert reader.sweep(1 << 30) == 0, "nothing is published"
    reader.commit(last)
    for seconds, removed in ((1000.0, 0), (1299.0, 0), (1301.0, 2)):
        passed[0] = seconds
        assert reader.sweep(1 << 30) == removed
    assert segment_numbers(three) == [2]


def test_above_its_limit_the_oldest_published_segment_goes(three: Path) -> None:
    reader = SpoolReader(three)
    reader.commit(reader.read()[-1].after)
    assert reader.sweep(2 * (HEAD_BYTES + FRAME_BYTES) - 1, aged=False) == 1
    assert segment_numbers(three) == [1, 2]


def test_a_rewound_reader_reads_what_is_kept_again(three: Path) -> None:
    reader = SpoolReader(three)
    assert reader.rewind() == 0, "nothing is published"
    reader.commit(reader.read()[-1].after, sequence=3)
    segment_path(three, 0).unlink()
    assert reader.rewind() == sum(segment_path(three, number).stat().st_size for number in (1, 2))
    assert payloads(reader) == [b"two", b"six"]
    again = SpoolReader(three)
    assert (payloads(again), again.sequence) == ([b"two", b"six"], 3)

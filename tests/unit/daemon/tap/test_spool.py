"""The spool gives back what was offered, in order, whatever happened to its tail, and never gets in the way."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.tap import recorder_process
from daemon.tap.recorder_process import SpoolThread
from daemon.tap.spool import (
    FRAME_BYTES,
    OTLP,
    Cursor,
    Record,
    SpoolReader,
    SpoolWriter,
    frame,
    read_cursor,
    segments,
)
from tests.support.full_disk import full_disk
from tests.support.patience import wait_until, within

pytestmark = pytest.mark.promise


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("_SYNC_SECONDS", 0.001),
        ("_TICK", 0.001),
        ("_RETRY_SECONDS", 0.01),
    ):
        monkeypatch.setattr(recorder_process, name, seconds)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def records(*payloads: bytes) -> list[Record]:
    return [Record(key(number), payload) for number, payload in enumerate(payloads)]


def started(directory: Path, *payloads: bytes, **limits: int) -> SpoolThread:
    """A thread that writes `payloads`."""
    writer = SpoolThread(SpoolWriter(directory, **limits), Counter())
    put(writer, *records(*payloads))
    return writer


def put(writer: SpoolThread, *records: Record) -> None:
    for record in records:
        writer.put(record)


def taking(writer: SpoolThread) -> bool:
    return writer.healthy and not writer.spool.full


def settled(writer: SpoolThread) -> int:
    return writer.counts["written"] + writer.counts["shed_disk"]


def write(directory: Path, *payloads: bytes) -> Path:
    """Write a segment with these."""
    writer = SpoolWriter(directory)
    assert writer.append(records(*payloads))
    writer.close()
    return directory / max(segments(directory))


def payloads(reader: SpoolReader, limit: int = 1000) -> list[bytes]:
    return [record.payload for record in reader.read(limit)]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_records_come_in_order_and_again_until_they_are_committed(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two", b"six")
    first = SpoolReader(tmp_path)
    assert first.lag_bytes() == 3 * (FRAME_BYTES + 3)
    assert first.read(limit=2) == records(b"one", b"two")
    assert first.lag_bytes() == FRAME_BYTES + 3
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two", b"six"]
    first.commit()
    assert payloads(SpoolReader(tmp_path)) == [b"six"]


@pytest.mark.parametrize(
    ("cursor", "kept"),
    [
        (f'{{"segment": "{7:012d}-{7:016x}.seg", "offset": 99}}'.encode(), Cursor(f"{7:012d}-{7:016x}.seg", 99)),
        (b'{"segment": "../../etc/passwd"}', Cursor()),
        (b"\x00\x00", Cursor()),
    ],
    ids=["of segments that were removed", "of no segment", "unreadable"],
)
def test_whatever_the_cursor_says_new_records_are_behind_it(tmp_path: Path, cursor: bytes, kept: Cursor) -> None:
    tmp_path.joinpath("cursor").write_bytes(cursor)
    write(tmp_path, b"one")
    assert read_cursor(tmp_path) == kept
    assert payloads(SpoolReader(tmp_path)) == [b"one"]


# -- damage ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    told=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8),
    cut=st.integers(min_value=0, max_value=200),
    junk=st.one_of(st.just(b""), st.just(b"\0" * 64), st.binary(max_size=64)),
)
def test_a_torn_tail_costs_only_the_records_in_it(tmp_path_factory, told: list[bytes], cut: int, junk: bytes) -> None:
    directory = tmp_path_factory.mktemp("spool")
    path = write(directory, *told)
    data = path.read_bytes()
    kept = max(0, len(data) - cut)
    path.write_bytes(data[:kept] + junk)
    ends = [sum(FRAME_BYTES + len(one) for one in told[: n + 1]) for n in range(len(told))]
    whole = [one for one, end in zip(told, ends, strict=True) if end <= kept]
    reader = SpoolReader(directory)
    assert payloads(reader)[: len(whole)] == whole
    write(directory, b"after the crash")
    assert payloads(reader)[-1:] == [b"after the crash"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    told=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6),
    where=st.floats(min_value=0, max_value=1, exclude_max=True),
    bit=st.integers(min_value=0, max_value=7),
    live=st.booleans(),
)
def test_a_flipped_bit_anywhere_costs_one_record_at_most_and_no_wait(
    tmp_path_factory, told: list[bytes], where: float, bit: int, live: bool
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    path = write(directory, *told)
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    path.write_bytes(data)
    if not live:
        write(directory, b"after")
    found = payloads(SpoolReader(directory))
    last = [] if live else [b"after"]
    wholes = [[*told, *last]] + [[*told[:at], *told[at + 1 :], *last] for at in range(len(told))]
    assert found in wholes


FORGED = frame(Record(key(9), b"forged"), b"guessed!") * 3


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "found", "torn"),
    [
        (lambda data: flip(data, data.index(b"one")), [FORGED, b"two"], 1),
        (lambda data: flip(data, data.index(FORGED) - 22), [b"one", b"two"], 1),
        (lambda data: data + b"\x05\x00\x00", [b"one", FORGED, b"two"], 0),
        (lambda data: bytes(8) + data[8:], [FORGED, b"two"], 1),
    ],
    ids=["a payload", "the length before a payload of forged records", "half a record at the end", "a mark"],
)
def test_damage_is_passed_over_and_counted_and_keeps_no_reader_busy(
    tmp_path: Path, monkeypatch, damage: Callable[[bytes], bytes], found: list[bytes], torn: int
) -> None:
    path = write(tmp_path, b"one", FORGED, b"two")
    path.write_bytes(damage(path.read_bytes()))
    reader = SpoolReader(tmp_path)
    assert (payloads(reader), reader.torn) == (found, torn)
    looked = Mock(side_effect=os.pread)
    monkeypatch.setattr(os, "pread", looked)
    assert (payloads(reader), looked.called) == ([], False)
    write(tmp_path, b"after")
    assert payloads(reader) == [b"after"]


def test_a_record_that_is_written_to_its_end_while_it_is_read_is_not_torn(tmp_path: Path, monkeypatch) -> None:
    path = write(tmp_path, b"one", b"two" * 1000, b"three")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"two") + 30])
    look = os.pread

    def before_the_rest_came(*where: int) -> bytes:
        found = look(*where)
        path.write_bytes(whole)
        return found

    reader = SpoolReader(tmp_path)
    assert payloads(reader, limit=1) == [b"one"]
    monkeypatch.setattr(os, "pread", before_the_rest_came)
    assert (payloads(reader), reader.torn) == ([b"two" * 1000, b"three"], 0)


# -- limits and disks that fail ----------------------------------------------------------------------------------------


def test_what_is_left_at_the_end_is_counted_as_lost(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = started(place, b"x" * 60, b"y")
    writer.close(within())
    assert (settled(writer), writer.counts["shed_disk"]) == (2, 2)


def test_the_disk_quota_sheds_and_lets_in_again_once_there_is_room(tmp_path: Path) -> None:
    writer = started(tmp_path, disk_bytes=1000, segment_bytes=100)
    for number in range(30):
        put(writer, Record(key(number), b"x" * 80))
        wait_until(lambda n=number: settled(writer) == n + 1, "it is written or shed", every=0.002)
    assert not taking(writer)
    assert 0 < writer.counts["written"] < 30
    assert len(segments(tmp_path)) > 1, "a segment ends at its size"
    assert len(payloads(SpoolReader(tmp_path))) == writer.counts["written"]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 1000
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    wait_until(lambda: taking(writer), "there is room again")
    put(writer, Record(key(99), b"again"))
    writer.close(within())
    assert payloads(SpoolReader(tmp_path))[-1] == b"again"


@pytest.mark.parametrize("comes", [True, False], ids=["at the next record", "while nothing comes"])
def test_a_segment_ends_after_a_while_however_little_is_in_it(tmp_path: Path, monkeypatch, comes: bool) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append(records(b"one"))
    writer.tend()
    assert len(segments(tmp_path)) == 1
    monkeypatch.setattr("daemon.tap.spool._SEGMENT_SECONDS", 0.0)
    for _ in range(3):
        writer.tend()
    if comes:
        writer.append(records(b"two"))
    assert len(segments(tmp_path)) == 2, "an empty one does not end"
    assert payloads(SpoolReader(tmp_path)) == ([b"one", b"two"] if comes else [b"one"])


def test_all_taps_of_a_machine_and_telemetry_share_the_quota(tmp_path: Path) -> None:
    record = [Record(key(0), b"x" * 80)]
    first, second, third = (SpoolWriter(tmp_path / place, 1000, segment_bytes=100) for place in ("0", "1", OTLP))
    assert all(first.append(record) for _ in range(3))
    assert second.append(record)
    assert [second.append(record) for _ in range(10)].count(True) < 8
    assert not third.append(record)
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.seg")) <= 1000


def test_a_broken_spool_keeps_records_in_memory_until_it_works_again(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = started(place, b"one")
    wait_until(lambda: not writer.healthy, "a write has failed")
    put(writer, Record(key(1), b"two"))
    place.unlink()
    wait_until(lambda: (settled(writer), writer.counts["shed_disk"]) == (2, 0) and taking(writer), "both are written")
    shutil.rmtree(place)  # made again, though the writer has its segment open
    put(writer, Record(key(2), b"three"))
    writer.close(within())
    assert payloads(SpoolReader(place)) == [b"three"]


def test_a_full_disk_loses_nothing_that_memory_holds_and_doubles_nothing_once_there_is_room(tmp_path: Path) -> None:
    told = [bytes([number]) * 5000 for number in range(40)]
    with full_disk(64_000):
        writer = started(tmp_path, *told)
        wait_until(lambda: writer.counts["errors"] >= 3, "it has tried again")
        assert not taking(writer)
        before = payloads(SpoolReader(tmp_path))
        assert before == told[: len(before)]
    wait_until(lambda: settled(writer) == len(told), "all are written")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path)) == told
    assert writer.counts["shed_disk"] == 0


def test_what_a_disk_could_not_keep_is_written_again_and_settled_only_then(tmp_path: Path, monkeypatch) -> None:
    writer = started(tmp_path, b"one")
    wait_until(lambda: settled(writer) == 1, "the first is safe")
    keep = os.fdatasync
    before: list[int] = []

    def fails_twice(file: int) -> None:
        before.append(settled(writer))
        if len(before) == 2:
            monkeypatch.setattr(os, "fdatasync", keep)
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fdatasync", fails_twice)
    put(writer, Record(key(1), b"two"))
    wait_until(lambda: settled(writer) == 2, "it is written again")
    put(writer, Record(key(2), b"three"))
    writer.close(within())
    assert (before, writer.counts) == ([1, 1], {"written": 3, "errors": 2, "shed_disk": 0})
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two", b"three"]


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    first = started(tmp_path, b"one")
    wait_until(lambda: settled(first) == 1, "the first has written")
    second = started(tmp_path, b"two")
    wait_until(lambda: not second.healthy, "the second has tried")
    assert len(segments(tmp_path)) == 1
    first.close(within())
    wait_until(lambda: settled(second) == 1, "the second has written")
    second.close(within())
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_the_spool_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "spool", b"one")
    assert (path.parent.stat().st_mode | path.stat().st_mode) & 0o077 == 0


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
    names = [*segments(three)]
    reader.read()
    for seconds, published, left in ((1000.0, False, 3), (1000.0, True, 3), (1299.0, True, 3), (1301.0, True, 1)):
        passed[0] = seconds
        if published:
            reader.commit()
        reader.sweep(1 << 30)
        assert [*segments(three)] == names[-left:]


def test_above_its_limit_the_oldest_published_segment_goes(three: Path) -> None:
    reader = SpoolReader(three)
    names = [*segments(three)]
    reader.read()
    reader.commit()
    reader.sweep(2 * FRAME_BYTES - 1, aged=False)
    assert [*segments(three)] == names[1:]


def test_a_rewound_reader_reads_what_is_kept_again(three: Path) -> None:
    reader = SpoolReader(three)
    assert reader.rewind() == 0, "nothing is published"
    reader.read()
    reader.commit(sequence=3)
    (three / min(segments(three))).unlink()
    assert reader.rewind() == 2 * (FRAME_BYTES + 3)
    assert payloads(reader) == [b"two", b"six"]
    again = SpoolReader(three)
    assert (payloads(again), again.sequence) == ([b"two", b"six"], 3)

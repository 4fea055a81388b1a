"""The spool gives back what was offered, in order, whatever happened to its tail, and never gets in the way."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemon.tap import spool_reader
from daemon.tap.segments import FRAME_BYTES, HEAD_BYTES, Cursor, frame, read_cursor, segment_numbers, segment_path
from daemon.tap.spool import SpoolLimits, SpoolWriter
from daemon.tap.spool_reader import SpoolReader
from tests.support.full_disk import full_disk
from tests.support.patience import wait_until, within

pytestmark = pytest.mark.promise
QUICK = {"tick_seconds": 0.001, "sync_seconds": 0.001, "retry_seconds": 0.01}


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def write(directory: Path, *payloads: bytes, **limits: object) -> SpoolWriter:
    """A writer that has written `payloads` and is closed."""
    writer = SpoolWriter(directory, SpoolLimits(**{**QUICK, **limits}))
    for number, payload in enumerate(payloads):
        assert writer.offer(key(number), payload)
    writer.start()
    writer.close(within())
    return writer


def payloads(reader: SpoolReader, limit: int = 1000) -> list[bytes]:
    return [record.payload for record in reader.read(limit)]


def test_records_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "spool", b"one", b"two", b"three")
    records = SpoolReader(tmp_path / "spool").read()
    assert [(record.id, record.payload) for record in records] == [
        (key(0), b"one"),
        (key(1), b"two"),
        (key(2), b"three"),
    ]


def test_a_reader_goes_on_where_it_committed(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two", b"three")
    first = SpoolReader(tmp_path)
    first.commit(first.read(limit=2)[-1].after)
    assert payloads(SpoolReader(tmp_path)) == [b"three"]


def test_what_was_read_and_not_committed_comes_again(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two")
    assert payloads(SpoolReader(tmp_path)) == payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_a_reader_sees_what_is_written_later(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path)
    assert not reader.ready()
    assert reader.read() == []
    write(tmp_path, b"one")
    assert reader.ready()
    assert payloads(reader) == [b"one"]
    write(tmp_path, b"two")
    assert reader.ready()
    assert payloads(reader) == [b"two"]
    assert not reader.ready()


def test_segments_roll_at_their_size(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, SpoolLimits(**QUICK, segment_bytes=100))
    writer.start()
    for number in range(6):
        writer.offer(key(number), b"x" * 80)
        wait_until(lambda n=number: writer.written == n + 1, "it is written", every=0.002)
    writer.close(within())
    assert len(segment_numbers(tmp_path)) > 1
    assert len(payloads(SpoolReader(tmp_path))) == 6


def test_a_new_writer_never_appends_to_an_old_segment(tmp_path: Path) -> None:
    write(tmp_path, b"one")
    write(tmp_path, b"two")
    assert segment_numbers(tmp_path) == [0, 1]


def test_segment_numbers_go_on_behind_the_cursor_when_segments_were_removed(tmp_path: Path) -> None:
    tmp_path.joinpath("cursor").write_text('{"segment": 7, "offset": 99}')
    write(tmp_path, b"one")
    assert payloads(SpoolReader(tmp_path)) == [b"one"]


def test_an_unreadable_cursor_means_reading_from_the_beginning(tmp_path: Path) -> None:
    write(tmp_path, b"one")
    tmp_path.joinpath("cursor").write_bytes(b"\x00\x00")
    assert read_cursor(tmp_path) == Cursor()
    assert payloads(SpoolReader(tmp_path)) == [b"one"]


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
    path = segment_path(directory, 0)
    data = b"".join(frame(key(number), record) for number, record in enumerate(records))
    kept = max(0, len(data) - cut)
    path.write_bytes(data[:kept] + junk)
    whole, end = [], 0
    for number, record in enumerate(records):
        end += len(frame(key(number), record))
        if end <= kept:
            whole.append(record)
    reader = SpoolReader(directory)
    assert payloads(reader)[: len(whole)] == whole
    write(directory, b"after the crash")
    assert payloads(reader)[-1:] == [b"after the crash"]


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


def test_a_flipped_bit_costs_one_record(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two", b"three")
    path = segment_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[data.index(b"two")] ^= 1
    path.write_bytes(data)
    reader = SpoolReader(tmp_path)
    assert payloads(reader) == [b"one", b"three"]
    assert reader.torn == 1


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


def test_nobody_writes_records_into_a_payload(tmp_path: Path) -> None:
    forged = frame(key(9), b"forged") * 3
    write(tmp_path, b"one", forged, b"two")
    path = segment_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    at = data.index(forged)
    data[at - 24 + 2] ^= 1  # of its length
    path.write_bytes(data)
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_a_segment_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    segment_path(tmp_path, 0).write_bytes(frame(key(0), b"one") + frame(key(1), b"two"))
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_a_torn_tail_does_not_keep_the_reader_busy(tmp_path: Path) -> None:
    write(tmp_path, b"one")
    with segment_path(tmp_path, 0).open("ab") as file:
        file.write(b"\x05\x00\x00")
    reader = SpoolReader(tmp_path)
    assert payloads(reader) == [b"one"]
    assert payloads(reader) == []
    assert not reader.ready()


def test_memory_is_bounded_and_what_is_shed_is_counted(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, SpoolLimits(**QUICK, memory_bytes=100))
    assert writer.offer(key(0), b"x" * 60)
    assert not writer.offer(key(1), b"x" * 60)
    assert (writer.waiting, writer.waiting_bytes, writer.shed) == (1, 84, 1)


def test_the_disk_quota_sheds_and_lets_in_again_once_there_is_room(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, SpoolLimits(**QUICK, disk_bytes=1000, segment_bytes=100))
    writer.start()
    for number in range(30):
        writer.offer(key(number), b"x" * 80)
        wait_until(lambda n=number: writer.written + writer.shed == n + 1, "it is written or shed", every=0.002)
    assert not writer.taking
    assert 0 < writer.written < 30
    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 1000
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    wait_until(lambda: writer.taking, "there is room again")
    assert writer.offer(key(99), b"again")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path))[-1] == b"again"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_retried(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    writer = SpoolWriter(tmp_path / "spool", SpoolLimits(**QUICK))
    writer.start()
    assert writer.offer(key(0), b"one")
    wait_until(lambda: not writer.healthy, "a write has failed")
    tmp_path.chmod(0o700)
    wait_until(lambda: writer.written == 1, "it is written")
    writer.close(within())


def test_a_broken_spool_keeps_records_in_memory_until_it_works_again(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = SpoolWriter(place, SpoolLimits(**QUICK))
    writer.start()
    assert writer.offer(key(0), b"one")
    wait_until(lambda: not writer.taking, "a write has failed")
    assert writer.offer(key(1), b"two"), "memory still takes it"
    place.unlink()
    wait_until(lambda: writer.written == 2 and writer.taking, "both are written")
    writer.close(within())
    assert payloads(SpoolReader(place)) == [b"one", b"two"]


def test_a_full_disk_loses_nothing_that_memory_holds_and_doubles_nothing_once_there_is_room(tmp_path: Path) -> None:
    records = [bytes([number]) * 5000 for number in range(40)]
    writer = SpoolWriter(tmp_path, SpoolLimits(**QUICK))
    writer.start()
    with full_disk(64_000):
        for number, record in enumerate(records):
            assert writer.offer(key(number), record)
        wait_until(lambda: writer.errors >= 3, "it has tried again")
        assert not writer.taking
        before = payloads(SpoolReader(tmp_path))
        assert before == records[: len(before)]
    wait_until(lambda: writer.written == len(records), "all are written")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path)) == records
    assert writer.shed == 0


def test_what_cannot_be_written_at_the_end_is_counted(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.write_text("a file where the directory should be")
    writer = SpoolWriter(place, SpoolLimits(**QUICK))
    writer.offer(key(0), b"one")
    writer.start()
    writer.close(within())
    assert writer.shed == 1


def test_a_directory_that_was_removed_under_the_writer_is_made_again(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "spool", SpoolLimits(**QUICK))
    writer.start()
    writer.offer(key(0), b"one")
    wait_until(lambda: writer.written == 1, "it is written")
    shutil.rmtree(tmp_path / "spool")
    writer.offer(key(1), b"two")
    writer.close(within())
    assert payloads(SpoolReader(tmp_path / "spool")) == [b"two"]


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    first = SpoolWriter(tmp_path, SpoolLimits(**QUICK))
    first.start()
    first.offer(key(0), b"one")
    wait_until(lambda: first.written == 1, "the first has written")
    second = SpoolWriter(tmp_path, SpoolLimits(**QUICK))
    second.start()
    second.offer(key(1), b"two")
    wait_until(lambda: not second.healthy, "the second has tried")
    assert segment_numbers(tmp_path) == [0]
    first.close(within())
    wait_until(lambda: second.written == 1, "the second has written")
    second.close(within())
    assert payloads(SpoolReader(tmp_path)) == [b"one", b"two"]


def test_published_segments_are_kept_for_a_while_and_then_removed_whatever_the_time_of_day_does(tmp_path: Path) -> None:
    for text in (b"one", b"two", b"three"):
        write(tmp_path, text)
    passed = [0.0]
    reader = SpoolReader(tmp_path, keep_seconds=300, monotonic=lambda: passed[0])
    reader.commit(reader.read()[-1].after)
    assert reader.sweep() == 0
    passed[0] = 299.0
    assert reader.sweep() == 0
    passed[0] = 301.0
    assert reader.sweep() == 2
    assert segment_numbers(tmp_path) == [2]


def test_nothing_unpublished_is_ever_removed(tmp_path: Path) -> None:
    write(tmp_path, b"one")
    write(tmp_path, b"two")
    reader = SpoolReader(tmp_path, keep_seconds=-1)
    reader.read()
    assert reader.sweep() == 0


def test_the_spool_is_for_its_owner_alone(tmp_path: Path) -> None:
    write(tmp_path / "spool", b"one")
    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0
    assert segment_path(tmp_path / "spool", 0).stat().st_mode & 0o077 == 0


def test_lag_counts_what_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two")
    reader = SpoolReader(tmp_path)
    assert reader.lag_bytes() == HEAD_BYTES + 2 * (FRAME_BYTES + 3)
    reader.read(limit=1)
    assert reader.lag_bytes() == FRAME_BYTES + 3


def test_above_its_limit_the_oldest_published_segment_goes(tmp_path: Path) -> None:
    for text in (b"one", b"two", b"three", b"four"):
        write(tmp_path, text)
    reader = SpoolReader(tmp_path, keep_bytes=3 * (HEAD_BYTES + FRAME_BYTES) - 1)
    reader.commit(reader.read()[-1].after)
    assert reader.sweep(aged=False) == 1
    assert segment_numbers(tmp_path) == [1, 2, 3]


def test_a_rewound_reader_reads_what_is_kept_again(tmp_path: Path) -> None:
    for text in (b"one", b"two", b"three"):
        write(tmp_path, text)
    reader = SpoolReader(tmp_path)
    reader.commit(reader.read()[-1].after, sequence=3)
    segment_path(tmp_path, 0).unlink()
    assert reader.rewind() == sum(segment_path(tmp_path, number).stat().st_size for number in (1, 2))
    assert payloads(reader) == [b"two", b"three"]
    again = SpoolReader(tmp_path)
    assert (payloads(again), again.sequence) == ([b"two", b"three"], 3)


def test_nothing_published_means_nothing_to_rewind(tmp_path: Path) -> None:
    write(tmp_path, b"one")
    reader = SpoolReader(tmp_path)
    assert reader.rewind() == 0
    assert payloads(reader) == [b"one"]

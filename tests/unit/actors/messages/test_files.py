"""A file that is there as a whole or not at all."""

import os
import stat
import threading

import pytest

from actors.messages.files import write_whole, writing_whole


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path):
    write_whole(tmp_path / "a", b"old")
    return tmp_path / "a"


def test_it_takes_the_place_of_what_is_there_and_pieces_are_seen_together(path):
    with writing_whole(path) as file:
        file.write(b"one ")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"two")
    assert (path.read_bytes(), names(path.parent)) == (b"one two", ["a"])


def test_permissions_are_those_of_any_new_file_or_the_ones_asked_for(tmp_path):
    before = os.umask(0o027)
    write_whole(tmp_path / "a", b"")
    os.umask(before)
    (tmp_path / "b").write_text("old")
    (tmp_path / "b").chmod(0o666)
    with writing_whole(tmp_path / "b", mode=0o600) as file:
        (aside,) = set(tmp_path.iterdir()) - {tmp_path / "a", tmp_path / "b"}
        assert mode(aside) == 0o600, "from the first byte"
        assert (aside.name[0], aside.name[-7:]) == (".", ".b.part"), "hidden, and told by the name that it is to have"
        file.write(b"new")
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o640, 0o600)


@pytest.mark.parametrize(("sync", "expected"), [(False, []), (True, [("file", False), ("directory", True)])])
def test_it_is_as_durable_as_is_asked_for(tmp_path, monkeypatch, sync, expected):
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(descriptor):
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        named = not os.readlink(f"/proc/self/fd/{descriptor}").endswith(".part")
        synced.append(("file" if is_file else "directory", named))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write_whole(tmp_path / "a", b"x", sync=sync)
    assert (synced, (tmp_path / "a").read_bytes()) == (expected, b"x")


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_in_between_leaves_what_was_there_and_nothing_else(path, failure):
    def half() -> None:
        with writing_whole(path) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(failure):
        half()
    assert (path.read_bytes(), names(path.parent)) == (b"old", ["a"])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_what_was_there_and_nothing_else(path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert (path.read_bytes(), names(path.parent)) == (b"old", ["a"])


def test_where_there_is_no_directory_there_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no" / "a", b"")


def test_writers_at_once_do_not_mix(path):
    contents = [b"old", *(bytes([letter]) * 100_000 for letter in b"abcdefgh")]

    def write(content: bytes) -> None:
        for _ in range(10):
            write_whole(path, content, sync=False)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in contents
    assert names(path.parent) == ["a"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_whole(pipe, b"text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]

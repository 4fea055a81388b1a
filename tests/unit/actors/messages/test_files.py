"""A file that is there as a whole or not at all."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from actors.messages.files import write_whole, writing_whole


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def synced(monkeypatch):
    """What was fsynced: "file" or "directory", and whether the file had its name by then."""
    found: list[tuple[str, bool]] = []
    original = os.fsync

    def fsync(descriptor):
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        hidden = os.readlink(f"/proc/self/fd/{descriptor}").endswith(".part")
        found.append(("file" if is_file else "directory", not hidden))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_it_is_for_its_owner_alone_even_over_an_open_file(tmp_path):
    path = tmp_path / "b.html"
    path.write_text("old")
    path.chmod(0o666)
    with writing_whole(path, mode=0o600) as file:
        assert mode(next(path for path in tmp_path.iterdir() if path.suffix == ".part")) == 0o600, "from the first byte"
        file.write(b"new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)


@pytest.mark.parametrize(
    ("sync", "expected"),
    [("none", []), ("file", [("file", False)]), ("directory", [("file", False), ("directory", True)])],
)
def test_it_is_as_durable_as_is_asked_for(tmp_path, synced, sync, expected):
    write_whole(tmp_path / "a", b"x", sync=sync)
    assert synced == expected


def test_pieces_are_seen_together_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    with writing_whole(path) as file:
        file.write(b"one ")
        file.flush()
        assert not path.exists()
        file.write(b"two")
    assert (path.read_bytes(), names(tmp_path)) == (b"one two", ["a"])


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_in_between_leaves_what_was_there_and_nothing_else(tmp_path, failure):
    path = tmp_path / "a"
    write_whole(path, b"old")

    def half() -> None:
        with writing_whole(path) as file:
            file.write(b"half")
            raise failure

    with pytest.raises(failure):
        half()
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["a"])


@pytest.mark.parametrize("call", ["fsync", "replace", "link"])
def test_a_disk_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "a"
    write_whole(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new", exclusive=call == "link")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["a"])


def test_of_two_that_want_to_be_the_first_one_is(tmp_path):
    path = tmp_path / "key"
    write_whole(path, b"first", exclusive=True)
    with pytest.raises(FileExistsError):
        write_whole(path, b"second", exclusive=True)
    assert (path.read_bytes(), names(tmp_path)) == (b"first", ["key"])


def test_writers_at_once_do_not_mix(tmp_path):
    path, contents = tmp_path / "a", [bytes([letter]) * 100_000 for letter in b"abcdefgh"]

    def write(content: bytes) -> None:
        for _ in range(10):
            write_whole(path, content, sync="none")

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert path.read_bytes() in contents
    assert (path.read_bytes() in contents, names(tmp_path)) == (True, ["a"])


def test_a_kill_in_between_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    write_whole(path, b"old")
    code = (
        "import os, pathlib, sys\n"
        "from actors.messages.files import writing_whole\n"
        "with writing_whole(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    left = [name for name in names(tmp_path) if name != "a"]
    assert path.read_bytes() == b"old"
    assert len(left) == 1
    assert left[0].startswith(".")
    assert left[0].endswith(".a.part"), "hidden, and told by the name that it was to have"


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_whole(pipe, b"text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]

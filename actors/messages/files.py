"""`write_whole`: a file that is there as a whole or not at all, whoever reads or dies meanwhile.

It is written beside its place under a hidden name that no other writer has, `.TOKEN.NAME.part`, and renamed. A process
that is killed meanwhile leaves that one; any other end removes it.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def writing_whole(path: Path, *, mode: int = 0o666, sync: bool = True) -> Generator[IO[bytes]]:
    """A file to write to that gets the name `path` at the end, in the place of what is there; after any exception
    `path` is as it was. With `sync` it is then on the disk for sure, under its name.

    A directory or a device is refused: renaming a file to /dev/null would take it from the whole machine.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    aside = path.with_name(f".{secrets.token_hex(8)}.{path.name}.part")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(descriptor)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    if sync:
        fsync(path.parent)


def write_whole(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Give `path` this content; see `writing_whole`."""
    with writing_whole(path, mode=mode, sync=sync) as file:
        file.write(content)


def lock(path: Path, *, shared: bool = False) -> int:
    """The open file `path`, locked until it is closed or its process is dead, alone or with others that want it
    `shared`; BlockingIOError: somebody has it who excludes us."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def alone_with(path: Path) -> Generator[None]:
    """Hold a lock on the directory of `path`, which is made if need be, after those who asked for it before."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def fsync(path: Path) -> None:
    """Make a file or a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

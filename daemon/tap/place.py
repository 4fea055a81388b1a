"""Several taps serve one machine: each has a number, and by it a directory of the spool and a port for its page.

    spool/0/  tap.lock     held by the tap: nobody else gets its number
              tap.json     where it is to be found
              writer.lock  held by its recorder, which may outlive it

The kernel frees the lock of a tap that was killed. Its successor gets the number again at once, and with it the port.
"""

import contextlib
import itertools
import os
import socket
from collections.abc import Collection, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from actors.messages.files import lock, write_whole
from daemon.tap.errors import NumberTaken

_MOST = 64
"""Taps of one machine."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a tap tells of itself in its directory."""

    number: int
    pid: int
    ports: tuple[int, ...]
    """On which it serves agents, and takes copies."""
    admin: str
    """HOST:PORT of its page."""


class Place:
    """The number of one tap, and its directory; its own until `leave`, or the end of the process.

    A name in the kernel tells those apart that cannot write there, and serve agents all the same; the lock tells those
    apart that do not share a network.
    """

    def __init__(self, spools: Path, number: int | None = None) -> None:
        """`spools` has a directory for each tap; without a `number` it is the first that is free.

        Raises:
            NumberTaken: another tap has it.
        """
        self._lock = -1
        self._told: Told | None = None
        for self.number in range(_MOST) if number is None else (number,):
            self.directory = spools / str(self.number)
            self._name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._name.bind(f"\0evolved-tap-{blake2b(os.fsencode(self.directory), digest_size=16).hexdigest()}")
                self._take()
            except OSError:
                self._name.close()
            else:
                return
        if number is None:
            raise NumberTaken(f"{_MOST} taps run with {spools}: end one of them")
        raise NumberTaken(
            f"another tap has number {number}: {self.directory / 'tap.json'} names its process; give this one another "
            "with --number, or none to take the first that is free"
        )

    def tell(self, told: Told) -> None:
        """Say where this tap is to be found."""
        self._told = told
        self.hold()

    def hold(self) -> None:
        """Do what could not be done so far, because nothing could be written there."""
        with contextlib.suppress(OSError):
            self._take()
            if self._told is not None and self._lock >= 0:
                write_whole(self.directory / "tap.json", msgspec.json.encode(self._told), sync=False)
                self._told = None

    def leave(self) -> None:
        if self._lock >= 0:
            (self.directory / "tap.json").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1
        self._name.close()

    def _take(self) -> None:
        """Take the lock, if anything can be written there; BlockingIOError: another tap has it."""
        if self._lock < 0:
            try:
                for directory in (self.directory.parent, self.directory):
                    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = lock(self.directory / "tap.lock")
            except BlockingIOError:
                raise
            except OSError:
                pass


def told(spools: Path) -> Sequence[Told]:
    """What the taps of this machine told, in their order; one that was killed may still be among them."""
    found: list[Told] = []
    for path in spools.glob("*/tap.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Told))
    return sorted(found, key=lambda one: one.number)


def admin_port(first: int, number: int, named: Collection[int]) -> int:
    """The port of the page of tap `number`: counted from `first` on, without those that the settings name."""
    if not first:
        return 0
    ports = (port for port in itertools.count(first) if port == first or port not in named)
    return next(itertools.islice(ports, number, None))

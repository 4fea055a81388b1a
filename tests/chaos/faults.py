"""What is done to one installation, and how it is undone: processes killed, stopped and slowed, a disk, a clock.

The disk is a file with ext4 on it, mounted (root is needed): full is a file that takes all of it; slow is `fsfreeze`
nine tenths of the time, so writes stall; read-only is the immutable flag on everything there (EPERM, for files that
are open as well: a remount is refused while there are writers). The clock is a library that is preloaded into our own
processes; nats-server reads the time without libc and keeps the machine's.
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from daemon.demo.world import World
from tests.support.process import family
from tests.support.swapping import swap_programs

DISK_BYTES = 768 << 20
"""Of the state: 20 versions of the demo's model, the broker's streams and the spool take less than half."""
SLOW = (0.45, 0.05)
"""Seconds that a slow process or disk stands still, and works."""
JUMP = 3600.0
"""Seconds that the clock jumps: longer than each idle time and lease there is."""


class Fault(msgspec.Struct, frozen=True):
    """One cell of the matrix."""

    process: str
    """A key of `VICTIMS`, `disk`, `clock` or `broker's directory`."""
    action: str
    stage: str
    """When: `call` (at once: calls are always in hand), `capture`, `update`, `version` or `swap`."""

    @property
    def cuts_agents(self) -> bool:
        """It ends what agents hold a connection to, or what answers them."""
        return self.action == "kill" and self.process in ("tap", "serving engine")

    @property
    def ends_tap(self) -> bool:
        """It ends what holds records that are not on disk yet."""
        return self.action == "kill" and self.process == "tap"

    def __str__(self) -> str:
        return f"{self.process} {self.action} @ {self.stage}"


def _of(pid: int | None, word: bytes) -> list[int]:
    """`pid`'s descendants with `word` in their command line."""
    found = []
    for one in family(pid)[1:] if pid is not None else ():
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{one}/cmdline").read_bytes():
                found.append(one)
    return found


def _server(world: World) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        return [int((world.config.state / "broker" / "nats.pid").read_text())]
    return []


VICTIMS: dict[str, Callable[[World], list[int | None]]] = {
    "tap": lambda world: [world.tap.pid],
    "scribe": lambda world: [*_of(world.tap.pid, b"recorder_process")],
    "daemon": lambda world: [world.daemon.pid],
    "swap program": lambda world: [*swap_programs(world.config.state)],
    "nats-server": lambda world: [*_server(world)],
    "learner": lambda world: [world.learner.pid],
    "serving engine": lambda world: [world.serving.pid],
    "shadow engine": lambda world: [world.shadow.pid],
}
"""The processes of an installation that are there now, by what they are; one of several is drawn."""

_KILLS = ("call", "capture", "update", "version", "swap")
ROWS: dict[tuple[str, str], tuple[str, ...]] = {
    ("tap", "kill"): ("call", "capture"),
    ("tap", "stop"): ("call", "capture"),
    ("tap", "slow"): ("call",),
    ("scribe", "kill"): ("capture",),
    ("scribe", "stop"): ("capture",),
    ("scribe", "slow"): ("capture",),
    ("daemon", "kill"): _KILLS,
    ("daemon", "stop"): _KILLS,
    ("daemon", "slow"): ("call", "swap"),
    ("swap program", "kill"): ("swap",),
    ("swap program", "stop"): ("swap",),
    ("nats-server", "kill"): _KILLS,
    ("nats-server", "unreachable"): _KILLS,
    ("nats-server", "slow"): ("call",),
    ("broker's directory", "rolled back"): ("call", "update"),
    ("learner", "kill"): ("update", "version"),
    ("learner", "stop"): ("update", "version"),
    ("learner", "slow"): ("update",),
    ("serving engine", "kill"): ("call", "swap"),
    ("serving engine", "stop"): ("call", "swap"),
    ("serving engine", "slow"): ("call", "swap"),
    ("shadow engine", "kill"): ("version", "update"),
    ("shadow engine", "stop"): ("version", "update"),
    ("disk", "full"): ("capture", "update", "swap"),
    ("disk", "slow"): ("capture", "update"),
    ("disk", "read-only"): ("capture", "update"),
    ("clock", "forward"): ("call", "update"),
    ("clock", "back"): ("call", "update"),
}
"""Each row, and the stages at which it is tried."""
_UNREACHABLE = 8.0
"""Seconds that nobody hears a stopped nats-server, whose port still takes connections: longer than the five after which
a missing heartbeat is noticed."""
_SECONDS = 3.0
"""That every other fault lasts which does not end by itself."""


def run_quietly(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Disk:
    """The small disk that an installation's state lies on."""

    def __init__(self, mount: Path, image: Path) -> None:
        self.mount, self.image = mount, image
        self._ballast = mount / "ballast"

    def make(self) -> None:
        """Mount it, empty."""
        self.mount.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        run_quietly("mkfs.ext4", "-q", "-F", str(self.image))
        run_quietly("mount", "-o", "loop", str(self.image), str(self.mount))

    def drop(self) -> None:
        """Unmount it, and forget what is on it."""
        for _ in range(50):
            if not os.path.ismount(self.mount):
                break
            with contextlib.suppress(RuntimeError):
                run_quietly("umount", str(self.mount))
                break
            time.sleep(0.2)
        self.image.unlink(missing_ok=True)

    def full(self, seconds: float) -> None:
        """Not a byte is free for so long."""
        try:
            with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            time.sleep(seconds)
        finally:
            self._ballast.unlink()

    def slow(self, seconds: float) -> None:
        """What is written waits most of the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            run_quietly("fsfreeze", "-f", str(self.mount))
            try:
                time.sleep(SLOW[0])
            finally:
                run_quietly("fsfreeze", "-u", str(self.mount))
            time.sleep(SLOW[1])

    def read_only(self, seconds: float) -> None:
        """Nothing there can be written, made or removed."""
        places = [str(one) for one in self.mount.iterdir() if one.name != "lost+found"]
        try:
            # What vanishes meanwhile cannot be flagged, and need not be.
            subprocess.run(["chattr", "-R", "-f", "+i", *places, str(self.mount)], check=False)
            time.sleep(seconds)
        finally:
            subprocess.run(["chattr", "-R", "-f", "-i", str(self.mount), *places], check=False)


class Clock:
    """The time of day, as our processes see it."""

    def __init__(self, directory: Path) -> None:
        self._file, self._library = directory / "clock", directory / "clock.so"

    def make(self) -> None:
        """Compile it, and set it right."""
        source = Path(__file__).with_name("clock.c")
        run_quietly("cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl")
        self._file.write_bytes(struct.pack("d", 0.0))

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs that goes by it."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def jump(self, seconds: float, by: float) -> None:
        """It is wrong for so long."""
        for offset in (by, 0.0):
            with self._file.open("r+b") as file:
                file.write(struct.pack("d", offset))
            if offset:
                time.sleep(seconds)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stopped(pids: list[int], seconds: float) -> None:
    _send(pids, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        _send(pids, signal.SIGCONT)


def _slowed(pids: list[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _stopped(pids, SLOW[0])
        time.sleep(SLOW[1])


def snapshot(world: World, into: Path) -> None:
    """A copy of the broker's directory, as a backup or a disk's snapshot has it."""
    shutil.rmtree(into, ignore_errors=True)
    pids = _server(world)
    _send(pids, signal.SIGSTOP)
    try:
        shutil.copytree(world.config.state / "broker", into, symlinks=True)
    finally:
        _send(pids, signal.SIGCONT)


def _rolled_back(world: World, old: Path) -> None:
    """The broker comes up with its directory of some while ago."""
    world.broker.stop(20)
    place = world.config.state / "broker"
    shutil.rmtree(place)
    shutil.copytree(old, place, symlinks=True)
    (place / "nats.pid").unlink(missing_ok=True)
    world.broker.start()


def inject(fault: Fault, world: World, disk: Disk, clock: Clock, old: Path, draw: float) -> bool:
    """Do it, and undo it unless it is for others to recover from; whether there was something to do it to."""
    if fault.process == "disk":
        {"full": disk.full, "slow": disk.slow, "read-only": disk.read_only}[fault.action](_SECONDS)
        return True
    if fault.process == "clock":
        clock.jump(_SECONDS, JUMP if fault.action == "forward" else -JUMP)
        return True
    if fault.action == "rolled back":
        _rolled_back(world, old)
        return True
    there = [pid for pid in VICTIMS[fault.process](world) if pid is not None]
    if not there:
        return False
    victim = [there[int(draw * len(there))]]
    match fault.action:
        case "kill":
            _send(victim, signal.SIGKILL)
        case "slow":
            _slowed(victim, _SECONDS)
        case "unreachable":
            _stopped(victim, _UNREACHABLE)
        case _:
            _stopped(victim, _SECONDS)
    return True

"""What lies on the disk: the state directory, its room, the store, the spool."""

import os
import pwd
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from actors.store.archive import ask
from actors.store.errors import SchemaMismatch, StoreUnavailable
from actors.store.tables import Runs
from daemon.doctor.base import Check, Finding, NotLooked, Scene, aside, fault, warning
from daemon.tap.spool import spool_age, spool_bytes, spools

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"}
"""File systems whose locks SQLite cannot rely on; fuse.* is looked at too."""
_MUST_BYTES, _SHOULD = 512 << 20, 0.05
_OLD_SECONDS = 300.0
_MOST_LOOKED_AT = 200


async def _state(scene: Scene) -> Sequence[Finding]:
    return await aside(_state_now, scene.config.state)


def _state_now(state: Path) -> list[Finding]:
    key = f"state_dir = {str(state)!r}"
    if not state.exists():
        return [warning(f"{key}: no such directory", "the first start makes it, if its user may; or set state_dir")]
    if not state.is_dir():
        return [fault(f"{key} is no directory", "set state_dir to one")]
    if os.statvfs(state).f_flag & os.ST_RDONLY:
        return [
            fault(f"{key} is on a file system that is mounted read-only", "mount it anew, or set state_dir elsewhere")
        ]
    if not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        return [fault(f"{key} cannot be written to", f"chown it to who runs evolved: chown -R evolved: {state}")]
    found: list[Finding] = []
    owner = state.stat().st_uid
    inside = [one for one in sorted(state.iterdir())[:_MOST_LOOKED_AT] if not one.is_symlink()]
    strange = [one for one in inside if one.lstat().st_uid != owner]
    if strange:
        found.append(
            fault(
                f"{strange[0]} belongs to {_name(strange[0].lstat().st_uid)}, and {state} to {_name(owner)}: a service "
                "cannot write to it",
                f"chown -R {_name(owner)}: {state}; run commands that write there as that user",
            )
        )
    if stat.S_IMODE(state.stat().st_mode) & 0o007:
        found.append(warning(f"{key}: others can look into it, and it holds agents' prompts", f"chmod 700 {state}"))
    return found


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _there(path: Path) -> Path:
    """`path`, or the nearest directory above it that exists."""
    while not path.exists():
        path = path.parent
    return path


async def _room(scene: Scene) -> Sequence[Finding]:
    found: list[Finding] = []
    for path in {_there(scene.config.state), _there(scene.config.spool)}:
        usage, inodes = await aside(shutil.disk_usage, path), await aside(os.statvfs, path)
        free = usage.free / usage.total if usage.total else 1.0
        files = inodes.f_favail / inodes.f_files if inodes.f_files else 1.0
        if usage.free < _MUST_BYTES or files < 0.001:
            found.append(
                fault(
                    f"{path}: the disk is nearly full (free: {usage.free >> 20} MiB, {100 * files:.1f} % of files)",
                    "make room, or lower limits.spool_gb, limits.streams_gb and what learner and swapper keep",
                )
            )
        elif free < _SHOULD or files < _SHOULD:
            found.append(
                warning(
                    f"{path}: {100 * min(free, files):.1f} % of the disk is free",
                    "make room before it is full: `du -sh` of its directories shows what is large",
                )
            )
    return found


async def _store(scene: Scene) -> Sequence[Finding]:
    url = scene.config.store_url
    try:
        shown = make_url(url)
    except SQLAlchemyError:
        return [
            fault("database.url is no address of a database", "write sqlite:////FILE or postgresql+psycopg://HOST/NAME")
        ]
    told = shown.render_as_string()
    sqlite = shown.get_backend_name() == "sqlite"
    if sqlite:
        file = Path(shown.database or "")
        network = await aside(network_file_system, file.absolute(), Path("/proc/self/mountinfo"))
        if network:
            return [
                fault(
                    f"{file} is on {network}: SQLite's locks do not hold there, and it breaks",
                    "set state_dir (or database.url) to a local disk, or database.url to a PostgreSQL",
                )
            ]
        if not file.exists():
            raise NotLooked("the daemon has not run yet")
    try:
        ahead = await aside(ask, url, lambda c: c.scalar(select(func.max(Runs.ended))))
    except SchemaMismatch as error:
        return [
            fault(
                f"{told}: {error}",
                "install the evolved that wrote it, export and import, or restore a backup of this one",
            )
        ]
    except StoreUnavailable as error:
        remedy = (
            "see that its disk is there and it belongs to the daemon's user"
            if sqlite
            else "start it, or set database.url"
        )
        return [fault(str(error), remedy)]
    except (ImportError, SQLAlchemyError) as error:
        return [fault(f"{told}: {error}", "install its driver: pip install 'evolved[postgres]'")]
    if ahead is not None and ahead > scene.now + _OLD_SECONDS:
        return [
            warning(
                f"the store has records {(ahead - scene.now) / 3600:.1f} h ahead of the clock: it was set back",
                "see that the clock is kept by NTP: timedatectl",
            )
        ]
    return []


def network_file_system(path: Path, mounts: Path) -> str:
    """The type of the file system of `path` if it is one of a network, else empty.

    Args:
        path: absolute.
        mounts: as /proc/self/mountinfo, proc(5).
    """
    best, kind = "", ""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if (str(path) == point or str(path).startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind if kind in _NETWORK or kind.startswith("fuse.") else ""


async def _spool(scene: Scene) -> Sequence[Finding]:
    spool, quota = scene.config.spool, int(scene.config.limits.spool_gb * (1 << 30))
    try:
        taps = await aside(spools, spool)
        if not taps:
            raise NotLooked("no tap has run yet")
        held = await aside(lambda: sum(spool_bytes(one) for one in taps))
    except OSError as error:
        return [fault(f"{error.filename}: {error.strerror}", "give it to who runs evolved; nothing in it is shipped")]
    age = max([await aside(spool_age, one, scene.now) for one in taps])
    found: list[Finding] = []
    if age > _OLD_SECONDS:
        found.append(
            fault(
                f"{spool}: a call has waited for {age / 60:.0f} min to be published: nobody reads the spool",
                "start the daemon, which ships it: systemctl start evolved-daemon; see that the broker takes records",
            )
        )
    if held > 0.8 * quota:
        found.append(
            fault(
                f"{spool} holds {held >> 20} MiB of {quota >> 20}: above it, records are shed",
                "start the daemon, or raise limits.spool_gb if the disk has room",
            )
        )
    return found


FILES = (
    Check("state directory", "it is there, ours to write to, and nobody else's to read", _state),
    Check("disk", "room for spool, store and versions", _room),
    Check("store", "the database answers, has our schema, and lies on a disk that it can lock", _store),
    Check("spool", "what the tap keeps is taken away", _spool),
)

"""`evolved db restore`: a backup becomes the state of a daemon that does not run.

    held alone -> copied beside -> digests, audit trail -> nothing in the way -> in place -> consumers to be rewound

A database in PostgreSQL is restored by its own pg_restore before this. The streams are no part of a backup, and their
consumers stand further than the store: `rewind` sends them back to the beginning. What the store's marks have is not
done again; what was handled after the backup, and is still in the streams, is handled anew under the ids that it had
then. Orders made after it are forgotten (docs/operate.md).
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
from sqlalchemy.exc import DBAPIError

from actors.store import Store, StoreError
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.engine import open_engine, sqlite_file
from actors.store.ledger import put_state
from actors.store.schema import check
from actors.system.bus import Bus
from daemon.errors import CommandFailed
from daemon.processes.state_lock import state_lock
from daemon.settings.tables import Config
from daemon.upkeep.backup import CONTENTS, DATABASE, Contents, digest

REWIND = "store.rewind"
"""State that a restore leaves: when its backup was made, unix seconds."""
_OTHERS = frozenset({"learner"})
"""Durables of processes whose memory a restore does not touch."""
log = structlog.get_logger(__name__)


async def rewind(store: Store, bus: Bus) -> int:
    """Have all streams delivered again from their beginning, if the store was restored; returns how many consumers.
    Before the first actor subscribes; a daemon that dies in between does it again."""
    if not await store.state_get(REWIND):
        return 0
    number = await bus.rewind(_OTHERS)
    await store.state_put(REWIND, b"")
    log.warning("streams_rewound", consumers=number)
    return number


def restore(config: Config, source: Path, *, say: Callable[[str], None]) -> Contents:
    """Put the backup `source` in place, but for its settings, which are to be compared with yours; what is in it.
    CommandFailed: it is damaged, or something is in the way; nothing was changed."""
    with state_lock(config.state, alone=True):
        try:
            with tempfile.TemporaryDirectory(dir=config.state, prefix=".restore.", ignore_cleanup_errors=True) as aside:
                copy = Path(aside) / "copy"
                shutil.copytree(source, copy, symlinks=True)
                contents = _checked(copy, say)
                _put(config, copy, contents)
                return contents
        except StoreError as error:
            raise CommandFailed(str(error)) from error
        except OSError as error:
            raise CommandFailed(f"{source} cannot be put into {config.state}: {error}") from error


def _checked(directory: Path, say: Callable[[str], None]) -> Contents:
    """What `backup.json` says, once all of it is true."""
    try:
        contents = msgspec.json.decode((directory / CONTENTS).read_bytes(), type=Contents)
    except (OSError, msgspec.DecodeError) as error:
        raise CommandFailed(f"no backup of evolved: {CONTENTS}: {error}; nothing was changed") from error
    listed = {entry.name for entry in contents.files}
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()} - {CONTENTS}
    if there != listed:
        wrong = sorted(there ^ listed)[0]
        raise CommandFailed(f"the backup is damaged: {wrong} is missing, or not of it; nothing was changed")
    say(f"checks {len(contents.files):,} files")
    for entry in contents.files:
        if digest(directory / entry.name) != entry.sha256:
            raise CommandFailed(f"the backup is damaged: {entry.name} is not what was written; nothing was changed")
    if contents.database:
        found = ask(f"sqlite:///{directory / DATABASE}", verify)
        problem = found.problem or ("" if str(found.head) == contents.head else f"it does not end at {contents.head}")
        if problem:
            raise CommandFailed(f"the backup's audit trail is broken: {problem}")
    return contents


def _put(config: Config, copy: Path, contents: Contents) -> None:
    """Move everything to its place."""
    database, state = sqlite_file(config.store_url), copy / "state"
    if (database is not None) != contents.database:
        kind = "SQLite" if contents.database else "PostgreSQL"
        raise CommandFailed(f"the backup is of an installation on {kind}: name a database of its kind")
    moves = {path: config.state / path.name for path in (state.iterdir() if state.is_dir() else ())}
    taken = sorted(path for path in moves.values() if path.exists())
    if database is not None:
        moves[copy / DATABASE] = database
        taken += [path for end in ("", "-wal", "-shm") if (path := Path(f"{database}{end}")).exists()]
    if taken:
        raise CommandFailed(
            f"{taken[0]} is there already; nothing was changed. Move what is in the way aside: "
            f"mkdir OLD && mv {' '.join(str(path) for path in taken)} OLD"
        )
    url = config.store_url if database is None else f"sqlite:///{copy / DATABASE}"
    _mark(url, contents.created, config.database.password_file)
    for path, place in moves.items():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(path, place)


def _mark(url: str, created: float, password_file: str) -> None:
    """Note in the store that consumers stand further than it does."""
    engine = open_engine(url, password_file)
    try:
        with engine.begin() as connection:
            check(connection)
            put_state(connection, REWIND, str(created).encode())
    except DBAPIError as error:
        raise CommandFailed(f"{engine.url.render_as_string()}: {error.orig}") from error
    finally:
        engine.dispose()

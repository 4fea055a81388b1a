"""`evolved export`: records out of the store, as JSONL, whether the daemon runs or not; and what both ways share.

store (read-only) -> to_line -> FILE        (the way back is `daemon.ingest.jsonl_import`)
"""

import gzip
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from actors.messages import Attributed, Exchange, Feedback, Trajectory
from actors.messages.files import writing_whole
from actors.store.archive import Archive, Kind
from actors.store.errors import StoreError, StoreUnavailable
from adapters.intake.jsonl import to_line
from daemon.errors import CommandFailed, ConfigError
from daemon.settings.tables import Config

Report = Callable[[str], None]

_REPORT_SECONDS = 2.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Progress:
    """Says how far it is, every two seconds: nothing about what takes less."""

    def __init__(self, say: Report, what: str, total: int | None = None) -> None:
        self._say, self._what, self._total = say, what, total
        self._began = self._said = time.monotonic()

    def at(self, number: int) -> None:
        now = time.monotonic()
        if now - self._said < _REPORT_SECONDS:
            return
        self._said = now
        of = "" if self._total is None else f" of {self._total:,}"
        self._say(f"{number:,}{of} {self._what}, {number / (now - self._began):,.0f}/s")


def export(
    config: Config,
    out: str,
    kind: Kind,
    *,
    since: float | None = None,
    until: float | None = None,
    tenant: str | None = None,
    say: Report,
) -> int:
    """Write the records of `kind` to the file `out`, or to standard output for "-"; returns how many."""
    try:
        archive = Archive(
            config.store_url, kind, since=since, until=until, tenant=tenant, password_file=config.database.password_file
        )
    except StoreError as error:
        raise CommandFailed(str(error)) from error
    progress, number = Progress(say, kind, len(archive)), 0
    try:
        with _writing(out) as file:
            for record in archive:
                assert isinstance(record, Trajectory | Attributed | Exchange | Feedback)
                file.write(to_line(record))
                file.write(b"\n")
                number += 1
                progress.at(number)
    except StoreUnavailable as error:
        raise CommandFailed(f"the store went away after {number} records: {error}") from error
    except OSError as error:
        raise CommandFailed(f"{out}: {error.strerror or error}") from error
    return number


@contextmanager
def _writing(out: str) -> Iterator[IO[bytes]]:
    """The file at `out`, for its owner alone: there from the moment that it is whole."""
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    with writing_whole(path, mode=0o600) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # an IO[bytes] in all but name
        else:
            yield file


def moment(text: str, now: float) -> float:
    """Unix seconds of "2026-05-01", "2026-05-01T12:30+02:00" (else UTC), "36h" or "7d" ago, or unix seconds."""
    try:
        if text[-1:] in _UNITS:
            return now - float(text[:-1]) * _UNITS[text[-1]]
        if text.replace(".", "", 1).isdecimal() and "-" not in text and len(text) >= 9:
            return float(text)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{text!r} is no time: write 2026-05-01, 2026-05-01T12:30, 7d (ago) or unix seconds"
        ) from error

"""`evolved export` and `evolved import`: records as JSONL, out of the store and onto the bus.

    store (read-only) -> to_line -> FILE
    FILE -> from_line -> redaction -> traffic.exchange, traffic.feedback, trajectory.closed

One daemon owns a store, so an import never writes to it: it publishes, as the shipper does, under ids that follow from
the records. What is imported again is recognised; while no daemon runs, it waits on the bus.
"""

import gzip
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Literal

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.messages import Attributed, Exchange, Feedback, ToolCall, Trajectory
from actors.messages.files import writing_whole
from actors.store.archive import Archive, Kind
from actors.store.errors import StoreError, StoreUnavailable
from actors.system import runtime
from actors.system.bus import Bus
from actors.system.lifecycle import Lifecycle
from actors.system.outgoing import Outgoing, outgoing
from actors.system.patience import Patience
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK, TRAJECTORY_CLOSED
from adapters.intake.jsonl import InvalidLine, Record, from_line, to_line
from adapters.redaction import Redactor
from daemon.errors import CommandFailed, ConfigError
from daemon.processes.bus_connection import open_bus
from daemon.processes.tap_settings import redaction
from daemon.settings.tables import Config

Kinds = Literal["auto", "trajectories", "exchanges", "feedback", "chat"]
Report = Callable[[str], None]

IMPORTED = "imported"
"""Why imported records are not trained on."""
_BATCH, _BATCH_BYTES = 256, 4 << 20
_MAX_LINE = 256 << 20
_SHOWN = 20
"""Bad lines that are told one by one."""
_CONNECT_SECONDS = 5.0
_WAIT_SECONDS = 60.0
"""The bus may take nothing for so long."""
_REPORT_SECONDS = 2.0
_CLOSED = (OSError, EOFError, zlib.error)
"""What a file may do while it is read: `gzip` has its own ways of being cut off."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Progress:
    """Says how far it is, every two seconds: nothing about what takes less."""

    def __init__(self, say: Report, what: str) -> None:
        self._say, self._what = say, what
        self._began = self._said = time.monotonic()

    def at(self, number: int) -> None:
        now = time.monotonic()
        if now - self._said >= _REPORT_SECONDS:
            self._said = now
            self._say(f"{number:,} {self._what}, {number / (now - self._began):,.0f}/s")


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
    progress, number = Progress(say, f"of {len(archive):,} {kind}"), 0
    try:
        with _writing(out) as file:
            for record in archive:
                assert isinstance(record, Record)
                file.write(to_line(record) + b"\n")
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


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to import."""

    kind: Kinds = "auto"
    tenant: str | None = None
    """Takes the place of the tenant that the lines name."""
    trainable: bool = False
    """The file is of this very installation: token ids and weight versions mean the same here."""
    dry_run: bool = False


class Summary(msgspec.Struct):
    """What came of it."""

    lines: int = 0
    records: Counter[str] = msgspec.field(default_factory=Counter)
    """By kind; a conversation is as many exchanges as it has answers, and one feedback."""
    bad: int = 0
    redacted: Counter[str] = msgspec.field(default_factory=Counter)
    published: int = 0


def import_file(config: Config, source: str, options: Options, *, say: Report) -> Summary:
    """Publish the records in the file `source`, or from standard input for "-"; bad lines are told and left out.

    Raises:
        CommandFailed: the file cannot be read to its end, or the broker takes nothing.
    """
    if source != "-" and not Path(source).is_file():
        raise CommandFailed(f"{source}: no such file")
    reader = Reader(options, Redactor(redaction(config)), say)

    async def connected(host: runtime.Host) -> None:
        bus = await open_bus(config, host, "import", _CONNECT_SECONDS)
        try:
            await publish_file(bus, source, reader, say)
        finally:
            await bus.aclose()

    if options.dry_run:
        anyio.run(publish_file, None, source, reader, say)
    else:
        runtime.run(connected)
    return reader.summary


async def publish_file(
    bus: Bus | None, source: str, reader: "Reader", say: Report, *, wait: float = _WAIT_SECONDS
) -> None:
    """Publish what `reader` makes of the lines; the bus may take nothing for `wait` seconds."""
    summary, progress = reader.summary, Progress(say, "lines")
    patience = Patience(
        Lifecycle("import"), structlog.get_logger(__name__), rng=random.Random(), longest=2.0,
        waited=lambda error: say(f"the broker takes nothing: {error}"),
    )  # fmt: skip
    try:
        with _reading(source) as file:
            batches = _batches(file, reader)
            while (batch := await anyio.to_thread.run_sync(next, batches, None)) is not None:
                first, items = batch
                if bus is not None:
                    with anyio.move_on_after(wait) as waiting:
                        await patience.insist(partial(bus.publish, items))
                        summary.published += len(items)
                    if waiting.cancelled_caught:
                        raise CommandFailed(
                            f"the broker took nothing for {wait:g} s; everything before line {first} is in. "
                            "Run the same command again: what is in is recognised"
                        )
                progress.at(summary.lines)
    except _CLOSED as error:
        text = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"{source}, after line {summary.lines}: {text}") from error


def _batches(file: IO[bytes], reader: "Reader") -> Iterator[tuple[int, list[Outgoing]]]:
    """(number of its first line, what it publishes) for as many lines as are published at a time."""
    items: list[Outgoing] = []
    first, size = 1, 0
    for number, line in enumerate(_lines(file), 1):
        fresh = reader.read(number, line)
        items += fresh
        size += sum(len(item.data) for item in fresh)
        if len(items) >= _BATCH or size >= _BATCH_BYTES:
            yield first, items
            items, first, size = [], number + 1, 0
    if items:
        yield first, items


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines, those that are too long cut off."""
    while line := file.readline(_MAX_LINE + 2):
        rest = line
        while len(rest) == _MAX_LINE + 2 and not rest.endswith(b"\n"):
            rest = file.readline(_MAX_LINE + 2)
        yield line


class Reader:
    """Lines to what is published of them; counts in its `summary`."""

    def __init__(self, options: Options, redactor: Redactor, say: Report) -> None:
        self._options, self._redactor, self._say = options, redactor, say
        self._now = time.time()
        self.summary = Summary()

    def read(self, number: int, line: bytes) -> list[Outgoing]:
        """What line `number` publishes; nothing if it is empty or bad."""
        self.summary.lines = number
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            return [self._outgoing(record) for record in self._records(line.rstrip(b"\r\n"))]
        except InvalidLine as error:
            self.summary.bad += 1
            if self.summary.bad <= _SHOWN:
                self._say(f"line {number}: {str(error)[:300]}")
            return []

    def _records(self, line: bytes) -> list[Record]:
        if not line.strip():
            return []
        if len(line) > _MAX_LINE:
            raise InvalidLine(f"longer than {_MAX_LINE} bytes")
        options = self._options
        records = from_line(line, tenant=options.tenant or "default", now=self._now, kind=options.kind)
        if self._redactor.strict and isinstance(records[0], Trajectory | Attributed):
            raise InvalidLine(
                "a run is made of texts, and redact.kinds = ['text'] keeps none: import its exchanges and feedback"
            )
        return records

    def _outgoing(self, record: Record) -> Outgoing:
        if isinstance(record, Attributed):
            record = record.trajectory
        if self._options.tenant is not None:
            record = msgspec.structs.replace(record, tenant=self._options.tenant)
        if isinstance(record, Exchange):
            kind, sent = "exchanges", outgoing(TRAFFIC_EXCHANGE, self._exchange(record))
        elif isinstance(record, Feedback):
            self._clean(record.text)
            kind, sent = "feedback", outgoing(TRAFFIC_FEEDBACK, self._redactor.feedback(record))
        else:
            kind, sent = "trajectories", outgoing(TRAJECTORY_CLOSED, self._trajectory(record))
        self.summary.records[kind] += 1
        return sent

    def _exchange(self, exchange: Exchange) -> Exchange:
        exchange = msgspec.structs.replace(exchange, source="import")
        if not self._options.trainable:
            exchange = msgspec.structs.replace(
                exchange, prompt_ids=b"", response_ids=b"", logprobs=b"", versions=(), why_no_tokens=IMPORTED
            )
        clean = self._redactor.message(exchange)
        self.summary.redacted += Counter(clean.finds) - Counter(exchange.finds)
        return clean

    def _trajectory(self, run: Trajectory) -> Trajectory:
        """Without secrets; ids decode back to them, so the rows go too where there were some."""
        before, clean = self.summary.redacted.total(), self._clean
        goal, tools = clean(run.goal), clean(run.tools.decode("utf-8", "replace"))
        steps = tuple(
            msgspec.structs.replace(
                step, text=clean(step.text), observation=clean(step.observation),
                tool_calls=tuple(ToolCall(call.name, clean(call.arguments), call.id) for call in step.tool_calls),
            )
            for step in run.steps
        )  # fmt: skip
        if self.summary.redacted.total() > before:
            steps = tuple(msgspec.structs.replace(step, row=-1) for step in steps)
            run = msgspec.structs.replace(
                run, goal=goal, tools=tools.encode(), steps=steps, rows=(), trainable=False, why_not="redacted"
            )
        if run.trainable and not self._options.trainable:
            run = msgspec.structs.replace(run, trainable=False, why_not=IMPORTED)
        return run

    def _clean(self, text: str) -> str:
        text, found = self._redactor.text(text)
        self.summary.redacted += Counter(found)
        return text


@contextmanager
def _reading(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    with gzip.open(source, "rb") if source.endswith(".gz") else open(source, "rb") as file:
        yield file  # type: ignore[misc]  # an IO[bytes] in all but name


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

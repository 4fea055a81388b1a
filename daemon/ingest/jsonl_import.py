"""`evolved import`: JSONL onto the bus.

    FILE -> from_line / from_chat -> redaction -> traffic.exchange, traffic.feedback, trajectory.closed

One daemon owns a store, so an import never writes to it: it publishes, as the tap's shipper does, under ids that follow
from the records. What is imported again is recognised; while no daemon runs, it waits on the bus.
"""

import gzip
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import anyio
import anyio.to_thread
import msgspec

from actors.messages import Attributed, Exchange, Feedback, Step, ToolCall, Trajectory
from actors.system import runtime
from actors.system.bus import Bus
from actors.system.errors import BusUnavailable
from actors.system.outgoing import Outgoing, outgoing
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK, TRAJECTORY_CLOSED
from adapters.intake.jsonl import InvalidLine, from_chat, from_line, kind_of
from adapters.redaction import Redactor
from daemon.errors import CommandFailed
from daemon.ingest.jsonl_export import Progress, Report
from daemon.processes.bus_connection import open_bus
from daemon.processes.tap_settings import redaction
from daemon.settings.tables import Config

Kinds = Literal["auto", "trajectories", "exchanges", "feedback", "chat"]

IMPORTED = "imported"
"""Why imported records are not trained on."""
_BATCH, _BATCH_BYTES = 256, 4 << 20
_MAX_LINE = 256 << 20
_SHOWN = 20
"""Bad lines that are shown one by one."""
_CONNECT_SECONDS = 5.0
_CLOSED = (OSError, EOFError, zlib.error)
"""What a file may do while it is read: `gzip` has its own ways of being cut off."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to import."""

    kind: Kinds = "auto"
    tenant: str | None = None
    """Takes the place of the tenant that the lines name."""
    trainable: bool = False
    """The file is of this very installation: token ids and weight versions mean the same here."""
    dry_run: bool = False
    wait: float = 60.0
    """Seconds in which the bus may take nothing."""


class Bad(msgspec.Struct, frozen=True):
    """A line that was not imported."""

    line: int
    reason: str


class Summary(msgspec.Struct):
    """What came of it."""

    lines: int = 0
    records: dict[str, int] = {}
    """By kind; a conversation is as many exchanges as it has answers, and one feedback."""
    bad: int = 0
    shown: list[Bad] = []
    redacted: dict[str, int] = {}
    published: int = 0
    stopped_at: int | None = None
    """First line of what the bus did not take any more; none if it took all."""
    problem: str = ""


def import_file(config: Config, source: str, options: Options, *, say: Report) -> Summary:
    """Publish the records in the file `source`, or from standard input for "-"."""
    if source != "-" and not Path(source).is_file():
        raise CommandFailed(f"{source}: no such file")
    if options.dry_run:
        return anyio.run(partial(_import, config, None, source, options, say))

    async def connected(host: runtime.Host) -> Summary:
        bus = await open_bus(config, host, "import", _CONNECT_SECONDS)
        try:
            return await _import(config, bus, source, options, say)
        finally:
            await bus.aclose()

    return runtime.run(connected)


async def _import(config: Config, bus: Bus | None, source: str, options: Options, say: Report) -> Summary:
    summary = Summary(records={}, shown=[], redacted={})
    reader = Reader(options, Redactor(redaction(config)), summary)
    progress = Progress(say, "lines")
    try:
        with _reading(source) as file:
            batches = _batches(file, reader)
            while (batch := await anyio.to_thread.run_sync(next, batches, None)) is not None:
                first, items = batch
                if bus is not None:
                    summary.problem = await _publish(bus, items, options.wait)
                    if summary.problem:
                        summary.stopped_at = first
                        break
                    summary.published += len(items)
                progress.at(summary.lines)
    except _CLOSED as error:
        text = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"{source}, after line {summary.lines}: {text}") from error
    return summary


async def _publish(bus: Bus, items: list[Outgoing], seconds: float) -> str:
    """Empty once the bus has them; else why it has not after `seconds`."""
    end, delay = anyio.current_time() + seconds, 0.1
    while True:
        try:
            await bus.publish(items)
            return ""
        except BusUnavailable as error:
            if anyio.current_time() + delay > end:
                return f"{type(error).__name__}: {error}"
        await anyio.sleep(delay)
        delay = min(2.0, 2 * delay)


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
    """Lines to what is published of them; counts in a `Summary`."""

    def __init__(self, options: Options, redactor: Redactor, summary: Summary) -> None:
        self._options, self._redactor, self._summary = options, redactor, summary
        self._now = time.time()

    def read(self, number: int, line: bytes) -> list[Outgoing]:
        """What line `number` publishes; nothing if it is empty or bad."""
        self._summary.lines = number
        line = line.rstrip(b"\r\n")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            return []
        try:
            records = self._records(line)
        except InvalidLine as error:
            self._summary.bad += 1
            if len(self._summary.shown) < _SHOWN:
                self._summary.shown.append(Bad(number, str(error)[:300]))
            return []
        return [self._outgoing(record) for record in records]

    def _records(self, line: bytes) -> list[Trajectory | Attributed | Exchange | Feedback]:
        if len(line) > _MAX_LINE:
            raise InvalidLine(f"longer than {_MAX_LINE} bytes")
        kind = kind_of(line)
        if self._options.kind not in ("auto", kind):
            raise InvalidLine(f"holds {kind}, and --kind {self._options.kind} was asked for")
        if kind == "chat":
            return [*from_chat(line, tenant=self._options.tenant or "default", now=self._now)]
        record = from_line(line)
        if self._redactor.strict and isinstance(record, Trajectory | Attributed):
            raise InvalidLine(
                "a run is made of texts, and redact.kinds = ['text'] keeps none: import its exchanges and feedback"
            )
        return [record]

    def _outgoing(self, record: Trajectory | Attributed | Exchange | Feedback) -> Outgoing:
        if isinstance(record, Attributed):
            record = record.trajectory
        if self._options.tenant is not None:
            record = msgspec.structs.replace(record, tenant=self._options.tenant)
        kind = {Trajectory: "trajectories", Exchange: "exchanges", Feedback: "feedback"}[type(record)]
        self._summary.records[kind] = self._summary.records.get(kind, 0) + 1
        if isinstance(record, Exchange):
            return outgoing(TRAFFIC_EXCHANGE, self._exchange(record))
        if isinstance(record, Feedback):
            self._count(self._redactor.text(record.text)[1])
            return outgoing(TRAFFIC_FEEDBACK, self._redactor.feedback(record))
        return outgoing(TRAJECTORY_CLOSED, self._trajectory(record))

    def _exchange(self, exchange: Exchange) -> Exchange:
        exchange = msgspec.structs.replace(exchange, source="import")
        if not self._options.trainable:
            exchange = msgspec.structs.replace(
                exchange, prompt_ids=b"", response_ids=b"", logprobs=b"", versions=(), why_no_tokens=IMPORTED
            )
        clean = self._redactor.message(exchange)
        self._count({kind: n - exchange.finds.get(kind, 0) for kind, n in clean.finds.items()})
        return clean

    def _trajectory(self, run: Trajectory) -> Trajectory:
        """Without secrets; ids decode back to them, so the rows go too where there were some."""
        finds: Counter[str] = Counter()

        def clean(text: str) -> str:
            text, found = self._redactor.text(text)
            finds.update(found)
            return text

        steps = tuple(_step(step, clean) for step in run.steps)
        changes: dict[str, Any] = {"goal": clean(run.goal), "steps": steps}
        tools = clean(run.tools.decode("utf-8", "replace"))
        if finds:
            self._count(finds)
            bare = tuple(msgspec.structs.replace(step, row=-1) for step in steps)
            changes |= {"tools": tools.encode(), "steps": bare, "rows": (), "trainable": False, "why_not": "redacted"}
            run = msgspec.structs.replace(run, **changes)
        if run.trainable and not self._options.trainable:
            run = msgspec.structs.replace(run, trainable=False, why_not=IMPORTED)
        return run

    def _count(self, finds: dict[str, int]) -> None:
        for kind, number in finds.items():
            if number:
                self._summary.redacted[kind] = self._summary.redacted.get(kind, 0) + number


def _step(step: Step, clean: Callable[[str], str]) -> Step:
    calls = tuple(ToolCall(call.name, clean(call.arguments), call.id) for call in step.tool_calls)
    return msgspec.structs.replace(step, text=clean(step.text), observation=clean(step.observation), tool_calls=calls)


@contextmanager
def _reading(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    with gzip.open(source, "rb") if source.endswith(".gz") else open(source, "rb") as file:
        yield file  # type: ignore[misc]  # an IO[bytes] in all but name

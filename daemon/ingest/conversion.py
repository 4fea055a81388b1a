"""From the spool to what goes to the bus: read a batch, make messages of its records.

    segments -> raw records -> Exchange / Feedback        (unreadable records -> `dead.spool`)

Pure but for the disk, and the same wherever it runs: merging streams and packing token ids is most of what the daemon
would do in an hour of traffic, so it happens in a process of its own (`daemon.ingest.converter`).
"""

from pathlib import Path

import msgspec
import structlog

from actors.messages import Feedback, MessageError
from actors.messages.spool import decode_spooled
from actors.system.actor import DeadLetter
from actors.system.outgoing import Outgoing, outgoing
from actors.system.streams import DEAD, TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from adapters.intake.tap import exchange_from_raw
from daemon.tap.segments import Position
from daemon.tap.spool_reader import SpoolReader

DEAD_SPOOL = f"{DEAD}.spool"

log = structlog.get_logger(__name__)


class Load(msgspec.Struct, frozen=True):
    """Which records are wanted."""

    spool: str
    position: Position
    limit: int
    max_bytes: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    items: list[Outgoing]
    after: Position
    """To be committed once the items are published."""
    exhausted: int = -1
    """Bytes of the last segment if it was read to its end; -1: there may be more."""
    torn: int = 0
    kinds: dict[str, int] = {}
    """Items that are exchange, feedback or dead."""
    unreadable: int = 0


class Conversion:
    """Reads and converts."""

    def __init__(self) -> None:
        self._readers: dict[str, SpoolReader] = {}

    def make(self, request: Load) -> Batch:
        reader = self._readers.get(request.spool)
        if reader is None:
            reader = self._readers[request.spool] = SpoolReader(Path(request.spool))
        if reader.position != request.position:
            reader.skip(request.position)
        torn = reader.torn
        items: list[Outgoing] = []
        kinds: dict[str, int] = {}
        unreadable = 0
        for record in reader.read(request.limit, request.max_bytes):
            item, kind, error = convert(record.id.hex(), record.payload)
            items.append(item)
            kinds[kind] = kinds.get(kind, 0) + 1
            unreadable += error
        return Batch(
            items=items,
            after=reader.position,
            exhausted=reader.exhausted,
            torn=reader.torn - torn,
            kinds=kinds,
            unreadable=unreadable,
        )


def convert(key: str, payload: bytes) -> tuple[Outgoing, str, bool]:
    """What a spooled record becomes: (item, "exchange" | "feedback" | "dead", whether its response is unreadable).

    Never raises: a record that cannot be decoded becomes a dead letter.
    """
    try:
        message = decode_spooled(payload)
        if isinstance(message, Feedback):
            return outgoing(TRAFFIC_FEEDBACK, message), "feedback", False
        exchange = exchange_from_raw(message)
        return outgoing(TRAFFIC_EXCHANGE, exchange), "exchange", bool(exchange.error)
    except MessageError as error:
        return dead(key, payload, str(error)), "dead", False
    except Exception as error:
        # A bug of ours in reading one record must not hold up all that come after it.
        log.exception("spool_record_failed", id=key)
        return dead(key, payload, repr(error)), "dead", False


def dead(key: str, payload: bytes, error: str) -> Outgoing:
    letter = DeadLetter(actor="spool", input_id=key, subject="", data=payload, error=error[:2000])
    return Outgoing(DEAD_SPOOL, f"{DEAD_SPOOL}:{key}", msgspec.msgpack.encode(letter))

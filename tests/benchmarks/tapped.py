"""The tap as a benchmark needs it: started as it is shipped, watched by its /metrics, its spool counted and deleted."""

import contextlib
import shutil
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from actors.messages.spool import RawExchange, decode_spooled
from daemon.tap.spool_reader import SpoolReader
from tests.support.tap_process import tap_process

_POLL_SECONDS = 0.02


class Kept(msgspec.Struct, frozen=True):
    """What a spool holds; with `problems`, by why, calls that were not captured whole."""

    records: int
    doubled: int
    problems: dict[str, int]
    with_ids: int


class Settled(msgspec.Struct, frozen=True):
    """Records that are written or shed, and the seconds that this was waited for."""

    records: int
    shed: int
    seconds: float


class Tapped:
    """A tap that runs."""

    def __init__(self, port: int, admin_port: int, spool: Path) -> None:
        self.port, self.spool = port, spool
        self._admin = f"http://127.0.0.1:{admin_port}/metrics"

    def await_settled(self, records: int, seconds: float) -> Settled:
        """Wait until so many records are on disk, or counted as shed; `seconds` at most."""
        began = time.monotonic()
        while True:
            samples, took = self._samples(), time.monotonic() - began
            shed = int(samples.get("evolved_tap_spool_shed_total", 0))
            settled = Settled(int(samples.get("evolved_tap_spool_written_total", 0)) + shed, shed, took)
            if settled.records >= records or took >= seconds:
                return settled
            time.sleep(_POLL_SECONDS)

    def overhead(self) -> tuple[float, float]:
        """Calls since its start, and its own seconds on them (total minus upstream), as its histogram has it."""
        samples = self._samples()
        return samples["evolved_tap_overhead_seconds_count"], samples["evolved_tap_overhead_seconds_sum"]

    def _samples(self) -> dict[str, float]:
        with urllib.request.urlopen(self._admin, timeout=10) as answer:
            text = answer.read().decode()
        families = text_string_to_metric_families(text)
        found: dict[str, float] = defaultdict(float)
        for family in families:
            for sample in family.samples:
                if not sample.labels or family.name == "evolved_tap_spool_shed":
                    found[sample.name] += sample.value
        return found


@contextlib.contextmanager
def tapped(engine_port: int, spool: Path, *, capture_tokens: bool, redaction: dict[str, Any]) -> Iterator[Tapped]:
    """A tap in front of the engine; when this ends it has drained and its spool is whole.

    Args:
        spool: a folder named spool.
        redaction: fields of `adapters.redaction.RedactionSettings`.
    """
    settings = {"capture_tokens": capture_tokens, "drain_seconds": 5.0}
    with tap_process(spool.parent, engine_port, redaction=redaction, **settings) as tap:
        yield Tapped(tap.port, tap.admin_port, tap.spool)


def count(spool: Path) -> Kept:
    """Read a whole spool, and delete it."""
    ids: set[bytes] = set()
    records = with_ids = 0
    problems: dict[str, int] = {}
    reader = SpoolReader(spool)
    while found := reader.read():
        records += len(found)
        ids.update(record.id for record in found)
        for record in found:
            exchange = decode_spooled(record.payload)
            assert isinstance(exchange, RawExchange)
            with_ids += b'"token_ids":[' in exchange.response
            if exchange.problem or exchange.status != 200:
                why = exchange.problem or f"status {exchange.status}"
                problems[why] = problems.get(why, 0) + 1
    shutil.rmtree(spool, ignore_errors=True)
    return Kept(records, records - len(ids), problems, with_ids)

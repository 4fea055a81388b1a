"""Exports of real instrumentations, recorded by `tests/unit/adapters/intake/otlp/record.py`, and calls made of them."""

import base64
import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from actors.messages import Exchange
from adapters.intake.otlp import Joiner, JoinSettings, exchange_from
from adapters.intake.otlp.records import Export
from adapters.intake.otlp.wire import Signal, decode

DIRECTORY = Path(__file__).parent.parent / "unit" / "adapters" / "intake" / "otlp"
REQUESTS = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}


def recorded(mode: str) -> list[tuple[Signal, bytes]]:
    """The exports of a run, traces and logs, in protobuf."""
    found = sorted(DIRECTORY.glob(f"{mode}-*.bin"))
    assert found
    return [("traces" if "-traces-" in path.name else "logs", path.read_bytes()) for path in found]


def exports(mode: str) -> list[Export]:
    """The same, decoded."""
    return [decode(signal, "protobuf", data) for signal, data in recorded(mode)]


def as_json(signal: Signal, data: bytes) -> bytes:
    """A protobuf export in OTLP's JSON, ids in hexadecimal."""
    body = MessageToDict(REQUESTS[signal].FromString(data))
    return json.dumps(_hexadecimal(body)).encode()


def calls_of(*found: Export, settings: JoinSettings | None = None, later: float = 1000.0) -> list[Exchange]:
    """What becomes of exports, given time; by start."""
    told = settings or JoinSettings()
    joiner = Joiner(told)
    taken = []
    for export in found:
        joiner.add(export, 0.0, size=1000)
        fresh = joiner.take()
        joiner.settle(fresh)
        taken += fresh
    made = [exchange_from(one, told) for one in [*taken, *joiner.take_due(later)]]
    return sorted((call for call in made if call is not None), key=lambda call: call.started)


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _from_base64(inner) if key in ("traceId", "spanId", "parentSpanId") else _hexadecimal(inner)
            for key, inner in value.items()
        }
    return [_hexadecimal(inner) for inner in value] if isinstance(value, list) else value


def _from_base64(text: str) -> str:
    return base64.b64decode(text).hex()

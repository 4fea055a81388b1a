"""Exports of real instrumentations (opentelemetry-instrumentation-openai-v2 2.4b0, openinference-instrumentation-openai
0.1.66, openai 3.52.0), as a collector got them, and calls made of them.

The agent asks "2+2 and 3+3?", calls a tool twice in one go, answers, and streams a second answer; then it asks once on
another endpoint. `silent` captured no content.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from actors.messages import Exchange
from adapters.intake.otlp.calls import exchange_from, is_call
from adapters.intake.otlp.wire import PROTOBUF, Span, decode

DIRECTORY = Path(__file__).parent.parent / "data" / "otlp"


def recorded(mode: str) -> bytes:
    """The export of a run, in protobuf."""
    return (DIRECTORY / f"{mode}-traces-1.bin").read_bytes()


def export(mode: str) -> list[Span]:
    """The same, decoded."""
    return decode(PROTOBUF, recorded(mode))[0]


def as_json(data: bytes) -> bytes:
    """A protobuf export in OTLP's JSON, ids in hexadecimal."""
    return json.dumps(_hexadecimal(MessageToDict(ExportTraceServiceRequest.FromString(data)))).encode()


def calls_of(spans: Sequence[Span], *, trace_is_run: bool = True) -> list[Exchange]:
    """What becomes of an export; by start."""
    made = [exchange_from(span, tenant="default", trace_is_run=trace_is_run) for span in spans if is_call(span)]
    return sorted((call for call in made if call is not None), key=lambda call: call.started)


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: base64.b64decode(inner).hex() if key in ("traceId", "spanId", "parentSpanId") else _hexadecimal(inner)
            for key, inner in value.items()
        }
    return [_hexadecimal(inner) for inner in value] if isinstance(value, list) else value

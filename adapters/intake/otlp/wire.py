"""OTLP/HTTP bodies, protobuf or JSON, to spans and events; and the answers to them.

Answers follow the specification of OTLP/HTTP: a partial success where records were not taken, `google.rpc.Status` where
the whole request was not.
"""

import zlib
from collections.abc import Callable
from typing import Literal

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces_pb

from adapters.intake.otlp import json_form, protobuf
from adapters.intake.otlp.errors import InvalidExport, UnsupportedMedia
from adapters.intake.otlp.records import Export

Signal = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]

_TYPES: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
MEDIA: dict[Encoding, str] = {encoding: media for media, encoding in _TYPES.items()}
_MAX_MESSAGE = 1000
"""Bytes of a refusal's text."""
_DECODERS: dict[tuple[Signal, Encoding], Callable[[bytes], Export]] = {
    ("traces", "protobuf"): protobuf.traces,
    ("logs", "protobuf"): protobuf.logs,
    ("traces", "json"): json_form.traces,
    ("logs", "json"): json_form.logs,
}


def encoding_of(content_type: str) -> Encoding:
    """
    Raises:
        UnsupportedMedia: neither of the two.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media not in _TYPES:
        raise UnsupportedMedia(f"content type {media or 'missing'!r}: send {' or '.join(_TYPES)}")
    return _TYPES[media]


def inflated(data: bytes, content_encoding: str, limit: int) -> bytes | None:
    """`data` without its content encoding; None if that is more than `limit` bytes.

    Raises:
        UnsupportedMedia: another encoding than gzip.
        InvalidExport: it is not what it says.
    """
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return data if len(data) <= limit else None
    if encoding != "gzip":
        raise UnsupportedMedia(f"content encoding {encoding!r}: send gzip, or none")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidExport(f"the body is not gzip: {error}") from error
    if len(plain) > limit:
        return None
    if not stream.eof:
        raise InvalidExport("the gzip body is cut off")
    return plain


def decode(signal: Signal, encoding: Encoding, data: bytes) -> Export:
    """The export in `data`.

    Raises:
        InvalidExport: it is none.
    """
    try:
        return _DECODERS[signal, encoding](data)
    except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidExport(f"no {signal} export: {error}") from error


def answer(signal: Signal, encoding: Encoding, refused: int = 0, message: str = "") -> bytes:
    """The body of a 200: empty, or what was not taken and why."""
    if encoding == "json":
        name = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
        partial = {"partialSuccess": {name: str(refused), "errorMessage": message}} if refused or message else {}
        return msgspec.json.encode(partial)
    if signal == "traces":
        spans = traces_pb.ExportTraceServiceResponse()
        if refused or message:
            spans.partial_success.rejected_spans, spans.partial_success.error_message = refused, message
        return spans.SerializeToString()
    records = logs_pb.ExportLogsServiceResponse()
    if refused or message:
        records.partial_success.rejected_log_records, records.partial_success.error_message = refused, message
    return records.SerializeToString()


def complaint(encoding: Encoding, code: int, message: str) -> bytes:
    """The body of a 4xx or 5xx: a `google.rpc.Status`.

    Args:
        code: of gRPC.
    """
    if encoding == "json":
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode()[:_MAX_MESSAGE].decode("utf-8", "ignore")
    # Field for field what `google.rpc.Status` is on the wire, which OpenTelemetry's package does not bring.
    return traces_pb.ExportTracePartialSuccess(rejected_spans=code, error_message=text).SerializeToString()

"""OTLP/HTTP bodies, protobuf or JSON, to spans; and the answers to them.

Answers follow the specification of OTLP/HTTP: a partial success where spans were not taken, `google.rpc.Status` where
the whole request was not.
"""

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from actors.ports.errors import AdapterError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_MAX_MESSAGE = 1000
"""Bytes of a refusal's text."""
_ERROR = 2
"""Status code of a span that failed."""
_NANO = 1e-9
"""Times on the wire are in nanoseconds."""


class Refused(AdapterError):
    """An export that is not taken, and the HTTP status that tells its sender whether to come again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    key: tuple[bytes, bytes]
    """Trace id (16 bytes) and span id (8 bytes)."""
    started: float = 0.0
    """Unix seconds."""
    ended: float = 0.0
    attributes: dict[str, Any] = {}
    """Values as JSON has them; bytes stay bytes."""
    resource: dict[str, Any] = {}
    """Attributes of who sent it."""
    failed: bool = False


def media_type(content_type: str) -> str:
    """`PROTOBUF` or `JSON`; `Refused` if it is neither."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in (PROTOBUF, JSON):
        raise Refused(415, f"content type {media or 'missing'!r}: send {PROTOBUF} or {JSON}")
    return media


def inflated(data: bytes, content_encoding: str, limit: int) -> bytes:
    """`data` without its content encoding; `Refused` if that is more than `limit` bytes, or not what it says."""
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return data
    if encoding != "gzip":
        raise Refused(415, f"content encoding {encoding!r}: send gzip, or none")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not gzip: {error}") from error
    if len(plain) > limit:
        raise too_large(limit)
    if not stream.eof:
        raise Refused(400, "the gzip body is cut off")
    return plain


def too_large(limit: int) -> Refused:
    return Refused(413, f"more than {limit} bytes: have the exporter send smaller batches")


def decode(media: str, data: bytes) -> tuple[list[Span], int]:
    """The spans in `data`, and how many have ids that are none. Unknown fields are skipped. `Refused` if it is no
    export, or nested deeper than protobuf allows."""
    spans: list[Span] = []
    refused = 0
    try:
        if media == JSON:
            request = json_format.Parse(data, ExportTraceServiceRequest(), ignore_unknown_fields=True)
        else:
            request = ExportTraceServiceRequest.FromString(data)
        for one in request.resource_spans:
            resource = _values(one.resource.attributes)
            for span in (span for scope in one.scope_spans for span in scope.spans):
                trace, name = (_id(part, media) for part in (span.trace_id, span.span_id))
                if len(trace) != 16 or len(name) != 8 or not any(trace) or not any(name):
                    refused += 1
                    continue
                spans.append(
                    Span(
                        key=(trace, name),
                        started=span.start_time_unix_nano * _NANO,
                        ended=span.end_time_unix_nano * _NANO,
                        attributes=_values(span.attributes),
                        resource=resource,
                        failed=span.status.code == _ERROR,
                    )
                )
    except (DecodeError, json_format.Error, RecursionError, ValueError) as error:
        raise Refused(400, f"no traces export: {error}") from error
    return spans, refused


def _id(read: bytes, media: str) -> bytes:
    """An id; OTLP's JSON has it in hexadecimal, which was read as base64. Empty if it is none."""
    try:
        return bytes.fromhex(base64.b64encode(read).decode()) if media == JSON else read
    except ValueError:
        return b""


def _values(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _values(value.kvlist_value.values)
    return getattr(value, kind)


def answer(media: str, refused: int = 0) -> bytes:
    """The body of a 200: empty, or how many spans were not taken and why."""
    told = ExportTraceServiceResponse()
    if refused:
        told.partial_success.rejected_spans = refused
        told.partial_success.error_message = "spans without a trace id and a span id cannot be told apart"
    return json_format.MessageToJson(told, indent=None).encode() if media == JSON else told.SerializeToString()


def complaint(media: str, message: str) -> bytes:
    """The body of a refusal: a `google.rpc.Status`, whose code OTLP/HTTP leaves out."""
    if media == JSON:
        return msgspec.json.encode({"message": message})
    text = message.encode()[:_MAX_MESSAGE].decode("utf-8", "ignore")
    # Its message has the number that the one of `Status` has, which OpenTelemetry's package does not bring.
    return ExportTracePartialSuccess(error_message=text).SerializeToString()

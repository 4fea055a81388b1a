"""OTLP/HTTP bodies, protobuf or JSON, to spans; and the answers to them.

Answers follow the specification of OTLP/HTTP: a partial success where spans were not taken, `google.rpc.Status` where
the whole request was not.
"""

import base64
import zlib
from collections.abc import Iterable
from typing import Any, Literal

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

Encoding = Literal["protobuf", "json"]

_TYPES: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
MEDIA: dict[Encoding, str] = {encoding: media for media, encoding in _TYPES.items()}
_MAX_MESSAGE = 1000
"""Bytes of a refusal's text."""
_INVALID_ARGUMENT = 3
_GRPC = {401: 16, 429: 8, 503: 14}
"""gRPC's codes of the refusals that are no invalid argument."""
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


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an exporter."""

    spans: tuple[Span, ...] = ()
    refused: int = 0
    """Spans with ids that are none."""


def encoding_of(content_type: str) -> Encoding:
    """The encoding of a body by its content type; `Refused` if it is neither of the two."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in _TYPES:
        raise Refused(415, f"content type {media or 'missing'!r}: send {' or '.join(_TYPES)}")
    return _TYPES[media]


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


def decode(encoding: Encoding, data: bytes) -> Export:
    """The spans in `data`; those with ids that are none are counted. Unknown fields are skipped. `Refused` if it is no
    export, or nested deeper than protobuf allows."""
    try:
        if encoding == "json":
            request = json_format.Parse(data, ExportTraceServiceRequest(), ignore_unknown_fields=True)
        else:
            request = ExportTraceServiceRequest.FromString(data)
        return _export(request, hexadecimal=encoding == "json")
    except (DecodeError, json_format.Error, RecursionError, ValueError) as error:
        raise Refused(400, f"no traces export: {error}") from error


def _export(request: ExportTraceServiceRequest, *, hexadecimal: bool) -> Export:
    spans: list[Span] = []
    refused = 0
    for one in request.resource_spans:
        resource = _values(one.resource.attributes)
        for span in (span for scope in one.scope_spans for span in scope.spans):
            trace, name = span.trace_id, span.span_id
            if hexadecimal:
                trace, name = _of_hex(trace), _of_hex(name)
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
    return Export(spans=tuple(spans), refused=refused)


def _of_hex(read: bytes) -> bytes:
    """An id of OTLP's JSON, which is hexadecimal there and was read as base64; empty if it is none."""
    try:
        return bytes.fromhex(base64.b64encode(read).decode())
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


def answer(encoding: Encoding, refused: int = 0, message: str = "") -> bytes:
    """The body of a 200: empty, or how many spans were not taken and why."""
    told = ExportTraceServiceResponse()
    if refused:
        told.partial_success.rejected_spans, told.partial_success.error_message = refused, message
    return json_format.MessageToJson(told, indent=None).encode() if encoding == "json" else told.SerializeToString()


def complaint(encoding: Encoding, status: int, message: str) -> bytes:
    """The body of an answer with `status`: a `google.rpc.Status`."""
    code = _GRPC.get(status, _INVALID_ARGUMENT)
    if encoding == "json":
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode()[:_MAX_MESSAGE].decode("utf-8", "ignore")
    # Field for field what `google.rpc.Status` is on the wire, which OpenTelemetry's package does not bring.
    return ExportTracePartialSuccess(rejected_spans=code, error_message=text).SerializeToString()

"""OTLP/HTTP bodies, protobuf or JSON, to spans; and the answers to them.

Answers follow the specification of OTLP/HTTP: a partial success where spans were not taken, `google.rpc.Status` where
the whole request was not.

OtlpError
├── InvalidExport      the body is no export; sending it again would not help
└── UnsupportedMedia   an encoding of the body that is not spoken here
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
_ERROR = 2
"""Status code of a span that failed."""
_NANO = 1e-9
"""Times on the wire are in nanoseconds."""


class OtlpError(AdapterError):
    """Root of this package's errors."""


class InvalidExport(OtlpError):
    """Names what is wrong with the body."""


class UnsupportedMedia(OtlpError):
    """Names the content type or encoding, and those that are spoken."""


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


def decode(encoding: Encoding, data: bytes) -> Export:
    """The spans in `data`; those with ids that are none are counted. Unknown fields are skipped.

    Raises:
        InvalidExport: no export, or nested deeper than protobuf allows.
    """
    try:
        if encoding == "json":
            request = json_format.Parse(data, ExportTraceServiceRequest(), ignore_unknown_fields=True)
        else:
            request = ExportTraceServiceRequest.FromString(data)
        return _export(request, hexadecimal=encoding == "json")
    except (DecodeError, json_format.Error, RecursionError, ValueError) as error:
        raise InvalidExport(f"no traces export: {error}") from error


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


def complaint(encoding: Encoding, code: int, message: str) -> bytes:
    """The body of a 4xx or 5xx: a `google.rpc.Status`.

    Args:
        code: of gRPC.
    """
    if encoding == "json":
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode()[:_MAX_MESSAGE].decode("utf-8", "ignore")
    # Field for field what `google.rpc.Status` is on the wire, which OpenTelemetry's package does not bring.
    return ExportTracePartialSuccess(rejected_spans=code, error_message=text).SerializeToString()

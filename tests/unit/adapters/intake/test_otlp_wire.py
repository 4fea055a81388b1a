"""OTLP/HTTP on the wire: both encodings say the same, and what is no export is refused with a reason."""

import contextlib
import gzip
import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from adapters.intake.otlp.wire import (
    InvalidExport,
    UnsupportedMedia,
    answer,
    complaint,
    decode,
    encoding_of,
    inflated,
)
from tests.support.otlp import as_json, recorded


def rpc_status():
    """The class of `google.rpc.Status`."""
    file = descriptor_pb2.FileDescriptorProto(name="status.proto", package="rpc", syntax="proto3")
    status = file.message_type.add(name="Status")
    status.field.add(name="code", number=1, type=5, label=1)
    status.field.add(name="message", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("rpc.Status"))


def test_json_and_protobuf_say_the_same() -> None:
    for mode in ("span", "silent", "openinference"):
        data = recorded(mode)
        assert decode("json", as_json(data)) == decode("protobuf", data)


def test_records_with_ids_that_are_none_are_refused_and_the_others_taken() -> None:
    good = {"traceId": "ab" * 16, "spanId": "cd" * 8, "startTimeUnixNano": "1500000000", "newField": {"x": 1}}
    spans = [good, {**good, "traceId": ""}, {**good, "spanId": "zz"}, {**good, "traceId": "00" * 16}]
    body = {"resourceSpans": [{"resource": None, "scopeSpans": [{"spans": spans}]}]}
    found = decode("json", json.dumps(body).encode())
    assert ([span.started for span in found.spans], found.refused) == ([1.5], 3)


def test_a_body_that_is_no_export_is_refused() -> None:
    for encoding in ("json", "protobuf"):
        for data in (b"\xff\xff", b"[" * 9000, b'{"resourceSpans": 3}', b"\x0a\x05x"):
            with pytest.raises(InvalidExport, match="no traces export"):
                decode(encoding, data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for encoding in ("json", "protobuf"):
        with contextlib.suppress(InvalidExport):
            decode(encoding, data)


def test_values_nested_too_deep_are_refused() -> None:
    value: dict = {"stringValue": "x"}
    for _ in range(60):
        value = {"arrayValue": {"values": [value]}}
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "attributes": [{"key": "x", "value": value}]}
    with pytest.raises(InvalidExport, match="no traces export"):
        decode("json", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode())


def test_gzip_is_inflated_up_to_the_limit_and_nothing_else_is() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert inflated(gzip.compress(b"x" * 100), "GZIP", 100) == b"x" * 100
    assert inflated(bomb, "gzip", 1_000_000) is None
    assert inflated(b"xx", "", 1) is None
    for cut in (bomb[:-20], b"plain"):
        with pytest.raises(InvalidExport):
            inflated(cut, "gzip", 20_000_000)
    with pytest.raises(UnsupportedMedia, match="br"):
        inflated(b"", "br", 10)


def test_other_content_types_are_named_in_the_refusal() -> None:
    assert encoding_of("Application/JSON; charset=utf-8") == "json"
    for media in ("", "text/plain"):
        with pytest.raises(UnsupportedMedia, match="application/x-protobuf"):
            encoding_of(media)


def test_a_partial_success_says_how_many_and_why() -> None:
    told = ExportTraceServiceResponse.FromString(answer("protobuf", 3, "why")).partial_success
    assert (told.rejected_spans, told.error_message) == (3, "why")
    said = {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "why"}}
    assert json.loads(answer("json", 2, "why")) == said
    assert (answer("protobuf"), answer("json")) == (b"", b"{}")


def test_a_refusal_is_a_status_of_grpc() -> None:
    status = rpc_status().FromString(complaint("protobuf", 14, "later, é" + "x" * 3000))
    assert (status.code, status.message[:8], len(status.message.encode())) == (14, "later, é", 1000)
    assert json.loads(complaint("json", 3, "bad")) == {"code": 3, "message": "bad"}

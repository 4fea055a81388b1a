"""Exports in protobuf, by OpenTelemetry's own classes."""

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from adapters.intake.otlp.errors import InvalidExport
from adapters.intake.otlp.records import MAX_DEPTH, NANO, Export, Log, Span, Taken, is_event

_ERROR = 2
"""Status code of a span that failed."""


def traces(data: bytes) -> Export:
    """The spans in `data`.

    Raises:
        DecodeError: of google.protobuf.
        InvalidExport: values nested too deep.
    """
    taken, spans = Taken(), list[Span]()
    for one in ExportTraceServiceRequest.FromString(data).resource_spans:
        resource = _values(one.resource.attributes)
        for span in (span for scope in one.scope_spans for span in scope.spans):
            key = taken.key(span.trace_id, span.span_id)
            if key is not None:
                spans.append(
                    Span(
                        key=key,
                        name=span.name,
                        started=span.start_time_unix_nano * NANO,
                        ended=span.end_time_unix_nano * NANO,
                        attributes=_values(span.attributes),
                        resource=resource,
                        failed=span.status.code == _ERROR,
                    )
                )
    return Export(spans=tuple(spans), refused=taken.refused)


def logs(data: bytes) -> Export:
    """The events in `data`; raises as `traces`."""
    taken, found = Taken(), list[Log]()
    for one in ExportLogsServiceRequest.FromString(data).resource_logs:
        resource = _values(one.resource.attributes)
        for record in (record for scope in one.scope_logs for record in scope.log_records):
            attributes = _values(record.attributes)
            name = record.event_name or str(attributes.get("event.name") or "")
            if not is_event(name):
                continue
            key = taken.key(record.trace_id, record.span_id)
            if key is not None:
                at = (record.time_unix_nano or record.observed_time_unix_nano) * NANO
                body = _value(record.body, 0)
                found.append(Log(key=key, name=name, at=at, body=body, attributes=attributes, resource=resource))
    return Export(logs=tuple(found), refused=taken.refused)


def _values(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value, 0) for pair in pairs}


def _value(value: AnyValue, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidExport(f"values nested deeper than {MAX_DEPTH}")
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item, depth + 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _value(pair.value, depth + 1) for pair in value.kvlist_value.values}
    return getattr(value, kind)

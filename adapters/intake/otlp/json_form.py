"""Exports in OTLP's JSON, which is not protobuf's: ids are hexadecimal.

Unknown fields are skipped, as the specification asks.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from adapters.intake.otlp.errors import InvalidExport
from adapters.intake.otlp.records import MAX_DEPTH, NANO, Export, Log, Span, Taken, is_event

_ERROR = (2, "STATUS_CODE_ERROR")


class _Any(msgspec.Struct, rename="camel"):
    string_value: str | msgspec.UnsetType = msgspec.UNSET
    bool_value: bool | msgspec.UnsetType = msgspec.UNSET
    int_value: int | str | msgspec.UnsetType = msgspec.UNSET
    double_value: float | str | msgspec.UnsetType = msgspec.UNSET
    array_value: "_Array | msgspec.UnsetType" = msgspec.UNSET
    kvlist_value: "_List | msgspec.UnsetType" = msgspec.UNSET
    bytes_value: bytes | msgspec.UnsetType = msgspec.UNSET


class _Array(msgspec.Struct):
    values: list[_Any] = []


class _Pair(msgspec.Struct):
    key: str = ""
    value: _Any | None = None


class _List(msgspec.Struct):
    values: list[_Pair] = []


class _Resource(msgspec.Struct):
    attributes: list[_Pair] = []


class _Status(msgspec.Struct):
    code: int | str = 0


class _JsonSpan(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    name: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[_Pair] = []
    status: _Status | None = None


class _JsonLog(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    body: _Any | None = None
    attributes: list[_Pair] = []


class _SpanScope(msgspec.Struct):
    spans: list[_JsonSpan] = []


class _LogScope(msgspec.Struct, rename="camel"):
    log_records: list[_JsonLog] = []


class _SpanResource(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_SpanScope] = []


class _LogResource(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_logs: list[_LogScope] = []


class _Traces(msgspec.Struct, rename="camel"):
    resource_spans: list[_SpanResource] = []


class _Logs(msgspec.Struct, rename="camel"):
    resource_logs: list[_LogResource] = []


_traces_decoder = msgspec.json.Decoder(_Traces)
_logs_decoder = msgspec.json.Decoder(_Logs)


def traces(data: bytes) -> Export:
    """The spans in `data`.

    Raises:
        DecodeError: of msgspec; or ValueError, for a number that is none.
        InvalidExport: values nested too deep.
    """
    taken, spans = Taken(), list[Span]()
    for resource, span in _under(_traces_decoder.decode(data).resource_spans, lambda one: one.scope_spans, "spans"):
        key = taken.key(_hex(span.trace_id), _hex(span.span_id))
        if key is not None:
            spans.append(
                Span(
                    key=key,
                    name=span.name,
                    started=int(span.start_time_unix_nano) * NANO,
                    ended=int(span.end_time_unix_nano) * NANO,
                    attributes=_pairs(span.attributes),
                    resource=resource,
                    failed=span.status is not None and span.status.code in _ERROR,
                )
            )
    return Export(spans=tuple(spans), refused=taken.refused)


def logs(data: bytes) -> Export:
    """The events in `data`; raises as `traces`."""
    taken, found = Taken(), list[Log]()
    for resource, record in _under(_logs_decoder.decode(data).resource_logs, lambda one: one.scope_logs, "log_records"):
        attributes = _pairs(record.attributes)
        name = record.event_name or str(attributes.get("event.name") or "")
        if not is_event(name):
            continue
        key = taken.key(_hex(record.trace_id), _hex(record.span_id))
        if key is not None:
            at = (int(record.time_unix_nano) or int(record.observed_time_unix_nano)) * NANO
            body = None if record.body is None else _plain(record.body, 0)
            found.append(Log(key=key, name=name, at=at, body=body, attributes=attributes, resource=resource))
    return Export(logs=tuple(found), refused=taken.refused)


def _under(resources: list[Any], scopes: Callable[[Any], list[Any]], name: str) -> Iterator[tuple[dict[str, Any], Any]]:
    for one in resources:
        attributes = {} if one.resource is None else _pairs(one.resource.attributes)
        for scope in scopes(one):
            for record in getattr(scope, name):
                yield attributes, record


def _pairs(pairs: list[_Pair]) -> dict[str, Any]:
    return {pair.key: None if pair.value is None else _plain(pair.value, 0) for pair in pairs}


def _plain(value: _Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidExport(f"values nested deeper than {MAX_DEPTH}")
    if isinstance(value.array_value, _Array):
        return [_plain(item, depth + 1) for item in value.array_value.values]
    if isinstance(value.kvlist_value, _List):
        pairs = value.kvlist_value.values
        return {pair.key: None if pair.value is None else _plain(pair.value, depth + 1) for pair in pairs}
    if value.int_value is not msgspec.UNSET:
        return int(value.int_value)
    if value.double_value is not msgspec.UNSET:
        return float(value.double_value)
    for found in (value.string_value, value.bool_value, value.bytes_value):
        if found is not msgspec.UNSET:
            return found
    return None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""

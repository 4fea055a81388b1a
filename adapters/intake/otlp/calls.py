"""From what was gathered of a call to an `Exchange`. Pure, and the same parts always give the same."""

from collections.abc import Mapping
from typing import Any

from actors.messages import Exchange, Hints, derived_id
from adapters.intake.otlp import genai, openinference
from adapters.intake.otlp.joining import Gathered, JoinSettings
from adapters.intake.otlp.said import Said, decoded, model_of, text
from adapters.intake.sampling import read_sampling

NO_TOKENS = "no token ids in spans"
_STATUS = ("http.response.status_code", "error.type")
_FAILED = 500
_NO = (None, False, "", "0", "false")


def exchange_from(one: Gathered, settings: JoinSettings) -> Exchange | None:
    """The call; None if what was said in it was not captured, or if it wants to be kept nowhere.

    A call that failed comes with its status, or 500; one whose answer nobody captured is not complete.
    """
    attributes = _attributes(one)
    said = _said(one, attributes)
    if said is None or opted_out(one):
        return None
    tenant, (trace, span) = one.place
    started, ended = _times(one)
    failed = one.span is not None and one.span.failed
    request, response = _object(said.request), _object(said.response)
    return Exchange(
        id=derived_id("otlp", tenant, trace.hex(), span.hex()),
        tenant=tenant,
        endpoint=said.endpoint,
        model=text(request.get("model")) or model_of(attributes),
        started=started,
        duration=max(0.0, ended - started),
        status=_status(attributes) if failed else 200,
        streamed=request.get("stream") is True,
        complete=bool(said.response) and not failed,
        request=said.request,
        response=said.response,
        response_id=text(response.get("id")),
        why_no_tokens=NO_TOKENS,
        sampling=read_sampling(request.get),
        hints=Hints(
            trajectory_id=_trajectory(attributes, trace, settings),
            previous_response_id=text(request.get("previous_response_id")),
            custom_id=text(attributes.get("evolved.id")),
        ),
        error=text(attributes.get("error.type")) if failed else "",
        source="otlp",
        caller=one.caller,
    )


def opted_out(one: Gathered) -> bool:
    """Whether the attribute `evolved.opt_out` is set."""
    return _attributes(one).get("evolved.opt_out") not in _NO


def _attributes(one: Gathered) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in one.messages:
        found |= event.attributes
    if one.details is not None:
        found |= one.details.attributes
    if one.span is not None:
        found |= one.span.attributes
    return found


def _said(one: Gathered, attributes: Mapping[str, Any]) -> Said | None:
    if one.span is not None and openinference.is_call(one.span.attributes):
        return openinference.read_attributes(one.span.attributes)
    if genai.has_messages(attributes):
        return genai.read_attributes(attributes)
    return genai.read_events(one.messages, attributes)


def _times(one: Gathered) -> tuple[float, float]:
    """When the call began and ended; without its span, when its first and its last event came."""
    if one.span is not None and one.span.started:
        return one.span.started, one.span.ended
    told = [event.at for event in (*one.messages, *([one.details] if one.details else [])) if event.at]
    return (min(told), max(told)) if told else (0.0, 0.0)


def _status(attributes: Mapping[str, Any]) -> int:
    for name in _STATUS:
        found = attributes.get(name)
        number = int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdecimal()) else 0
        if 400 <= number < 600:
            return number
    return _FAILED


def _trajectory(attributes: Mapping[str, Any], trace: bytes, settings: JoinSettings) -> str:
    for name in ("gen_ai.conversation.id", "session.id"):
        if found := text(attributes.get(name)):
            return found
    return trace.hex() if settings.trace_is_trajectory else ""


def _object(data: bytes) -> dict[str, Any]:
    found = decoded(data) if data else None
    return found if isinstance(found, dict) else {}

"""From a span to an `Exchange`. Pure, and the same span always gives the same."""

from collections.abc import Mapping
from typing import Any

from actors.dialects import parsed
from actors.dialects.conversation import string
from actors.dialects.form import FIELDS, value
from actors.messages import Exchange, Hints, derived_id
from adapters.intake.asked import told
from adapters.intake.otlp import genai, openinference
from adapters.intake.otlp.said import model_of
from adapters.intake.otlp.wire import Span

NO_TOKENS = "no token ids in spans"
_STATUS = ("http.response.status_code", "error.type")
_FAILED = 500
_RUNS = ("gen_ai.conversation.id", "session.id")
_NO = (None, False, "", "0", "false")


def is_call(span: Span) -> bool:
    """Whether it is a call of a model: agents, tools and embeddings have spans as well."""
    return genai.is_call(span.attributes) or openinference.is_call(span.attributes)


def opted_out(span: Span) -> bool:
    """Whether the attribute `evolved.opt_out` is set."""
    return span.attributes.get("evolved.opt_out") not in _NO


def exchange_from(span: Span, *, tenant: str, caller: str = "", trace_is_run: bool = True) -> Exchange | None:
    """The call; None if what was said in it was not captured, or if it wants to be kept nowhere.

    A call that failed comes with its status, or 500; one whose answer nobody captured is not complete. With
    `trace_is_run` calls without gen_ai.conversation.id or session.id belong together if they share a trace; without,
    they are linked by what they say: right where one trace holds many tasks, say those of a nightly job.
    """
    attributes = span.attributes
    said = (openinference if openinference.is_call(attributes) else genai).read_attributes(attributes)
    if said is None or opted_out(span):
        return None
    trace, name = (part.hex() for part in span.key)
    named = (string(attributes.get(name)) for name in _RUNS)
    request = parsed(said.request, FIELDS.decode) or {}
    fields = told(request, parsed(said.response, FIELDS.decode) or {})
    fields["model"] = fields["model"] or model_of(attributes)
    return Exchange(
        id=derived_id("otlp", tenant, trace, name),
        tenant=tenant,
        endpoint=said.endpoint,
        started=span.started,
        duration=max(0.0, span.ended - span.started),
        status=_status(attributes) if span.failed else 200,
        streamed=value(request, "stream") is True,
        complete=bool(said.response) and not span.failed,
        request=said.request,
        response=said.response,
        why_no_tokens=NO_TOKENS,
        hints=Hints(
            trajectory_id=next(filter(None, named), trace if trace_is_run else ""),
            previous_response_id=string(value(request, "previous_response_id")),
            custom_id=string(attributes.get("evolved.id")),
        ),
        error=string(attributes.get("error.type")) if span.failed else "",
        source="otlp",
        caller=caller,
        **fields,
    )


def _status(attributes: Mapping[str, Any]) -> int:
    for name in _STATUS:
        found = attributes.get(name)
        number = int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdecimal()) else 0
        if 400 <= number < 600:
            return number
    return _FAILED

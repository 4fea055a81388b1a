"""OpenTelemetry as a way in: LLM calls from the spans and events that agents' instrumentations export.

    body -> wire.decode -> Joiner -> exchange_from -> Exchange       (the server is `daemon.ingest.otlp_receiver`)

No token ids travel in spans, so these calls are never trained on by policy gradient; they are judged, and give
experience and tasks.
"""

from adapters.intake.otlp.calls import exchange_from, opted_out
from adapters.intake.otlp.errors import InvalidExport, OtlpError, UnsupportedMedia
from adapters.intake.otlp.joining import Gathered, Joiner, JoinSettings

__all__ = [
    "Gathered",
    "InvalidExport",
    "JoinSettings",
    "Joiner",
    "OtlpError",
    "UnsupportedMedia",
    "exchange_from",
    "opted_out",
]

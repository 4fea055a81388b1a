"""OpenTelemetry as a way in: LLM calls from the spans that agents' instrumentations export.

    body -> wire.decode -> calls.exchange_from -> Exchange       (the server is `daemon.ingest.otlp_receiver`)

No token ids travel in spans, so these calls are never trained on by policy gradient; they are judged, and give
experience and tasks.
"""

"""Ingest: what was captured becomes messages on the bus.

In: the tap's spool (`shipper`), OTLP exports (`otlp_receiver`), JSONL files (`transfer`, which also writes them).
Out: exchanges and feedback on TRAFFIC.
"""

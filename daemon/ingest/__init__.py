"""Ingest: what was captured becomes messages on the bus.

In: the tap's spool (`shipper`), OTLP exports (`otlp_receiver`), JSONL files (`jsonl_import`).
Out: exchanges and feedback on TRAFFIC; and `jsonl_export`, the way back.
"""

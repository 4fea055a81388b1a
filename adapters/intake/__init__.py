"""Ways in: where calls of production agents come from.

Whatever the way (the tap's spool, OTLP spans, a JSONL file), what comes out are the same `Exchange`s, so nothing after
this point knows or cares.
"""

"""The tap: passes `/v1/*` through to the engine and copies what goes by into a spool on disk.

    server ── agent (one agent's connection) ── proxy (one call) ── router ── upstream (pooled connections)
                │                                 │
             http (bytes to requests)          capture, feedback -> recorder -> spool

It is the only part of evolved in the way of production: no broker, no database, no LLM call, no torch in here. What the
copy needs can fail in any way without an agent noticing.
"""

"""Judges: who says, step by step, what helped; the port is `actors.ports.models`.

In: a closed trajectory. Out: a label a step. `rules` needs no model, `llm` asks one, `panel` several, `verified` lets
evidence override them.
"""

"""Judges: who says, step by step, what helped; the ports are `actors.ports.judges` and `actors.ports.preference`.

In: a closed trajectory. Out: a label a step. `rules` needs no model, `llm` asks one, `panel` several, `verified` lets
evidence override them; `conduct` prefers between two answers.
"""

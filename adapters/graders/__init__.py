"""Graders: how well an attempt went where no verifier can say it; the port is `actors.ports.models`.

In: a task, its steps, a reference. Out: a grade, or none. `llm` asks a model, `ensemble` several.
"""

"""Trajectories: calls that were seen become trajectories.

In: exchanges and feedback. Out: closed trajectories with token rows. `assembler` is the actor; `dialects` read what was
said on any endpoint, `link_keys` and `stitching` say what belongs together, `side_calls` take titles, summaries and
retries out, `builder` makes steps and rows of the rest.
"""

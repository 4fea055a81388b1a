"""Makes the checkpoints that the demo starts from (`python -m tests.warmstart`); users get them in daemon/demo.

The demo measures what a checkpoint can do: it tells how often tasks are solved before anything is learned.
"""

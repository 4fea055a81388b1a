"""Makes the checkpoints that the demo starts from: tokenizer, model, supervised training, and its measurement.

A tool of ours (`python -m tests.warmstart --help`): users get the checkpoints as they are, in daemon/demo.
"""

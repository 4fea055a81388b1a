"""The ablation: does step credit pay, and do lessons. `python -m tests.benchmarks.ablation`.

Tasks are played and learnt from in one process: no daemon, no swaps, the learner's own code.
"""

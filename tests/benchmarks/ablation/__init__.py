"""The ablation: does step credit pay, does experience, and what breaks learning. `python -m tests.benchmarks.ablation`.

In one process, without daemon, broker or HTTP, runs the code that ships:

    desk tasks -> `player` (batched sampling, exact ids and log-probs) -> trajectories (`attempts`) -> labels (`labels`)
    -> `learner.credit.assign` -> `learner.batch.build` -> `NativeTrainer.update` -> held-out success   (`loop`)

`plan` says which runs there are, `bases` makes the checkpoints that they start from, `results` keeps what is done in
docs/results/ablation.json, `statistics` and `show` turn it into figures, tables and curves.
"""

"""Outcomes that nobody reported: what happened after a run, and how likely that makes its success.

    run -> `transcript` -> what happened next (`aftermath`) -> `signals` -> `features` -> `outcome_model` -> V
                                        each signal's record: `signal_records`      skill, calibration: `skill`

In: production runs as they close, and reported outcomes as they come, both told by the curator (`waiting.Provisional`).
Out: provisional outcomes with the model's weight, for batches alone. They are the lowest rank of evidence: they give
way to what is reported, and neither the gate, the sentinel, `actors.kinds` nor the model itself ever learns from one.
"""

"""The gate: may this candidate serve?

In: candidates, held-out outcomes, what serves. Out: verdicts, and orders to the learner to go back.
`gatekeeper` is the actor; what serves and what was ended it reads from the books (`standing`). A trial measures
(`sandbox_trial` on tasks, `replay_trial` on recorded production, which `evidence` chooses and `weighing` adds up), the
`panel` adds checks (`prompts`, `safety`, `distance`) that outrank it.
"""

"""Curation: which trajectories the next update is made of, and why the rest may not be.

In: attributed trajectories, versions as the learner makes them and as they serve. Out: orders to the learner.
`curator` is the actor, `pool` what may be trained on; for people: each agent's runs, and what learning waits for.
"""

"""Rollout: attempts at sandbox tasks on the shadow engine, so that the learner has fresh groups.

In: versions trained and served, what the curriculum plans. Out: trajectories of the sandbox, in groups.
`rollout` is the actor, `episode_runner` plays one episode with a `harness` and a `context` template.
"""

"""`content_hash`: which trajectories are the same to a judge, so that the same is never paid for twice."""

import hashlib

import msgspec

from actors.messages import Trajectory


def content_hash(judge: str, rubric: str, trajectory: Trajectory) -> str:
    """sha256, hex, of what a judge may look at: goal, tools, steps, outcome, and how the run ended.

    Ids, times and tokens are left out: they differ between runs that say the same. Tenants are kept apart. Shown blind,
    without its outcome, a trajectory is another one.
    """
    steps = [
        (step.text, [(call.name, call.arguments) for call in step.tool_calls], step.observation)
        for step in trajectory.steps
    ]
    seen = (
        judge, rubric, trajectory.tenant, trajectory.goal, trajectory.tools, steps, trajectory.outcome,
        trajectory.closed_by,
    )  # fmt: skip
    return hashlib.sha256(msgspec.msgpack.encode(seen)).hexdigest()

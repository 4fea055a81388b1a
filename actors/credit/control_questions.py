"""`ask_blind`: a question to the judge that gives no labels but tells how good its labels are.

It holds no trajectory up: where the judge is away, fails, or has no budget left, there is no evidence, and that is all.
The same trajectory is always chosen, and the same content is one piece of evidence, however often it comes.
"""

import msgspec

from actors.credit.asking import Asking
from actors.credit.content import content_hash
from actors.credit.judgement_cache import JudgementCache
from actors.kinds.holdout import chance
from actors.messages import Attribution, Trajectory
from actors.system.errors import DependencyUnavailable

SUCCESS = 0.5
"""Outcome from which on a trajectory has succeeded."""
BLIND_SHARE = 0.1
"""Of trajectories with a verified outcome, those that the judge is shown blind as well, at its usual price."""


async def ask_blind(asking: Asking, judgements: JudgementCache, trajectory: Trajectory, until: float) -> None:
    """Show the judge a trajectory without its outcome, if that is verified: a sandbox's verdict, or feedback.

    Args:
        until: no question is begun after this time (anyio's).
    """
    if trajectory.outcome is None or not trajectory.steps or chance(trajectory.id, "blind") >= BLIND_SHARE:
        return
    hidden = msgspec.structs.replace(trajectory, outcome=None)
    key = content_hash(asking.judge.name, f"{asking.judge.rubric} blind", hidden)
    await judgements.look_up([key])
    if judgements.found(key):
        return
    try:
        found = await asking.once(hidden, until)
    except DependencyUnavailable:
        return
    if isinstance(found, Attribution):
        judgements.stats.observe(found, trajectory, good=trajectory.outcome >= SUCCESS)
        await judgements.judged(key, trajectory, found)
        judgements.claim(key)

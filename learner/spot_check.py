"""The spot check of a version: log-probs by which an engine shows that it computes what the learner does.

Random tokens instead of recorded ones: no word of anybody's lies beside the weights, and each layer has its part in
their log-probs as it has in those of a sentence.
"""

import numpy as np

from actors.messages.manifest import SpotCheck
from learner.batch import TrajectoryBatch
from learner.trainers import Trainer

_TOKENS = 64


def spot_check(trainer: Trainer, seed: int) -> SpotCheck:
    """Tokens drawn from `seed`, and their log-probs under the present weights."""
    length = min(_TOKENS, trainer.max_tokens)
    # Most vocabularies end with control tokens, and with rows that no token has.
    ids = np.random.default_rng(seed).integers(0, max(1, trainer.vocabulary // 2), length).astype(np.int32)
    scored = np.ones(length, np.uint8)
    scored[0] = 0
    zeros = np.zeros(length, np.float32)
    batch = TrajectoryBatch(
        ids=ids,
        mask=scored,
        advantages=zeros,
        behaviour=zeros,
        clip_low=zeros,
        clip_high=zeros,
        versions=np.full(length, -1, np.int32),
        steps=np.full(length, -1, np.int16),
        lengths=np.array([length], np.int64),
        guided=np.zeros(1, np.uint8),
        temperature=np.ones(1, np.float32),
        trajectory=np.zeros(1, np.int32),
        trajectories=("",),
        base_version=-1,
    )
    return SpotCheck(ids=ids.tolist(), log_probs=trainer.log_probs(batch).tolist())

"""How fast things go, and how much is looked at: what must differ between a policy of billions of parameters, which
changes within hours, and a toy of half a million, which does within seconds.

None of it is a setting. `profile` in config.toml chooses between the two.
"""

import msgspec


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds are seconds; what a field means for its part stands where it is used."""

    beta2: float
    """AdamW: decay of the squared gradient."""
    weight_decay: float
    stall_seconds: float
    """Without a new version for so long, the rollout plays another round."""
    group_seconds: float
    """How long the curator waits for an incomplete group."""
    mix_share: float
    """Share of the sandbox's tasks that the environment chooses, so that new kinds are found."""
    gate_seconds: float
    """After a verdict, until the newest candidate is judged though fewer versions came, or one that was held is judged
    again."""
    replay_gate_seconds: float
    """The same without a sandbox, where a verdict costs little."""
    gate_tick_seconds: float
    gate_batch: int
    """Held-out tasks from one look at the result to the next."""
    gate_verdicts: int
    """Verdicts' worth of held-out tasks that a candidate has at most."""
    replay_margin: float
    """What `gate.margin` is where outcomes decide; 0: the same."""
    probe_attempts: int
    probe_tokens: int
    prompts: int
    """Production prompts that the gate replays."""
    entropy_low: float
    """Least entropy of a candidate's tokens, as a multiple of the incumbent's: below, it has collapsed."""
    drift_runs: int
    kl_limit: float
    """Nats a token that a candidate may be away from the incumbent."""
    reconcile_seconds: float
    """Between two looks of the swapper at the engines when nothing is heard."""
    trial_seconds: float
    """A trial lasts so long at least."""


PRODUCTION = Pace(
    beta2=0.999, weight_decay=0.01, stall_seconds=60.0, group_seconds=120.0, mix_share=0.125,
    gate_seconds=60.0, replay_gate_seconds=60.0, gate_tick_seconds=5.0, gate_batch=32, gate_verdicts=4,
    replay_margin=0.0, probe_attempts=4, probe_tokens=256, prompts=64, entropy_low=0.2, drift_runs=64, kl_limit=0.5,
    reconcile_seconds=5.0, trial_seconds=60.0,
)  # fmt: skip
TOY = Pace(
    beta2=0.99, weight_decay=0.0, stall_seconds=30.0, group_seconds=15.0,
    mix_share=1.0,  # three families, all of them asked for: the desk's own mix keeps them all
    gate_seconds=30.0, replay_gate_seconds=2.0, gate_tick_seconds=2.0, gate_batch=16,
    gate_verdicts=3,  # minutes stand for days
    replay_margin=0.15, probe_attempts=1,
    probe_tokens=16,  # it knows no English: it can only be no worse
    prompts=24,
    entropy_low=0.02,  # from groping to knowing in a dozen updates
    drift_runs=16, kl_limit=2.0, reconcile_seconds=2.0, trial_seconds=4.0,
)  # fmt: skip
PACES = {"production": PRODUCTION, "toy": TOY}

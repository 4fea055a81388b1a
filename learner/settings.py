"""The learner's settings; the defaults are the paper's. Imports no torch, so that the daemon can check a config."""

from typing import Annotated, Literal

import msgspec

from learner.credit import CreditSettings

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Decay = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


class LearnerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the learner learns and what it keeps."""

    warm_start: str = ""
    """Hugging Face checkpoint directory that becomes version 0 if there is no version yet."""
    trainer: Literal["native", "verl"] = "native"
    """`native`: torch on a CPU or one GPU. `verl`: FSDP2 over all GPUs of a node, started by torchrun in an environment
    of its own (docs/several-machines.md)."""
    sequence_parallel: AtLeastOne = 1
    """verl: GPUs that share each row (Ulysses); it divides the ranks and the model's attention heads."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU if there is one. On a GPU weights are fp32 and computed with in bf16."""
    threads: Count = 0
    """torch's threads; 0 leaves torch's own choice."""
    seed: int = 0
    """Of the split into mini-batches; with the version it decides it, so a resumed run repeats."""

    lr: Positive = 1e-6
    """AdamW's learning rate."""
    beta1: Decay = 0.9
    """AdamW: decay of the mean gradient."""
    beta2: Decay = 0.999
    """AdamW: decay of the squared gradient."""
    weight_decay: NotNegative = 0.01
    """AdamW's decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    mini_batches: AtLeastOne = 4
    """Optimizer steps an update at most, one for each two trajectories; rows are dealt to them by chance."""
    micro_tokens: Count = 0
    """Tokens of one forward and backward; bounds memory, changes no result. 0 suits the device."""
    gradient_checkpointing: bool = False
    """Activations are computed again for the gradient instead of kept: a third more work, a fraction of the memory."""

    clip_low: NotNegative = 0.2
    """The ratio is clipped at 1 - clip_low."""
    clip_high: NotNegative = 0.28
    """The ratio is clipped at 1 + clip_high."""
    clip_boosted: NotNegative = 0.6
    """clip_high of guided tokens with a positive advantage (selective boosting)."""
    dual_clip: Annotated[float, msgspec.Meta(gt=1)] = 3.0
    """With a negative advantage the ratio counts no higher than this."""
    token_limit: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """In the place of the clip's bounds: tokens whose probability has moved by more than this since they were sampled,
    the way that their advantage pulls, give no gradient, see `learner.loss.within_limit`; 0 for the clip."""
    aggregation: Aggregation = "token-mean"
    """How tokens add up to the loss of a mini-batch, verl's names, see `learner.loss.token_shares`; a sequence is a
    trajectory."""
    aggregation_tokens: AtLeastOne = 1024
    """The constant that `seq-mean-token-sum-norm` divides a trajectory's sum by."""
    kl_coef: NotNegative = 0.001
    """Weight of the penalty towards the reference; 0 saves the reference model and its forward."""
    reference: Literal["fixed", "moving"] = "fixed"
    """What the penalty pulls to: version 0 for good, or weights that follow the policy. Moving, it bounds how fast the
    policy goes and not how far; a rollback takes it back as well."""
    reference_updates: AtLeastOne = 16
    """With `reference = "moving"`: after so many updates the reference becomes the present weights."""
    old_policy: Literal["behaviour", "proximal"] = "behaviour"
    """What the ratio is taken to: recorded log-probs, or log-probs recomputed before the update (decoupled PPO), which
    was measured to collapse at a lag of 1-4 updates unless `importance` and a `kl_limit` of about 0.001 go with it."""
    guided: Literal["recomputed", "behaviour"] = "recomputed"
    """The same for guided rows: recomputed in the stripped context with weight 1, or the recorded ones, whose ratio
    was measured to erase the lesson."""
    importance: Literal["none", "truncated", "icepop"] = "truncated"
    """With `old_policy = "proximal"`: weights for how the policy that sampled differs from the one that is trained, cut
    at `truncate`, or 0 outside of `icepop_low` to `icepop_high`."""
    truncate: Positive = 2.0
    """Limit of truncated importance weights."""
    icepop_low: NotNegative = 0.5
    """IcePop: tokens whose probability fell below this part of what it was give no gradient."""
    icepop_high: Positive = 2.0
    """IcePop: nor do those whose probability rose to more than this."""
    sequence_low: NotNegative = 0.0
    """Rows are left out if their tokens' probability, in the geometric mean, fell below this part of what it was; costs
    a forward unless `old_policy = "proximal"`. Guided rows whose log-probs are recomputed are not judged."""
    sequence_high: NotNegative = 0.0
    """The same where it rose to more than this; 0 for no limit."""
    min_effective_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """A batch whose effective sample size, by the ratios that it begins with, is below this part of its tokens is
    mostly noise and refused; 0 takes every batch."""
    kl_limit: NotNegative = 0.05
    """Most that one update may move the policy, in nats a token (k3 on a probe of its own rows): a step beyond it is
    halved until it fits, or undone, and the rest of the update is left out. 0 for no guard."""
    max_staleness: Count = 4
    """Updates that a token's policy may lie back; what is older is dropped, not weighted."""
    max_staleness_guided: Count = 2
    """The same for guided rows, which were measured to need fresh samples."""
    credit: CreditSettings = CreditSettings()
    """From outcomes and labels to advantages."""

    keep_versions: Annotated[int, msgspec.Meta(ge=2)] = 8
    """Newest version directories that are kept; version 0 and pinned ones are kept besides."""
    remembered_orders: AtLeastOne = 4096
    """Orders remembered as done, so that one delivered again trains nothing twice."""
    attempts: AtLeastOne = 3
    """Deliveries of an order whose file is missing, or that the trainer fails on, before it is given up."""
    retry_seconds: Positive = 2.0
    """Wait before the next attempt at an order that could not be handled."""
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9464
    """First port that is tried for Prometheus metrics; 0 for none. Where another learner has it, the next free one of
    16 is taken and logged (`metrics_served`); where all are taken, the learner does not start."""
    metrics_host: str = "127.0.0.1"
    """Address that metrics are served on."""
    tensorboard_dir: str = ""
    """Directory that TensorBoard's event files are written to; empty for none."""

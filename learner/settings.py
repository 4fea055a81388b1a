"""The learner's settings. Imports no torch, so that the daemon can check a config."""

from typing import Literal

import msgspec

from learner.credit import CreditSettings

BETA1 = 0.9
"""AdamW's decay of the mean gradient: everybody's."""
MAX_GRAD_NORM = 1.0
"""Gradients are scaled down to this norm: everybody's."""


class LearnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the learner learns and what it keeps."""

    warm_start: str = ""
    """Hugging Face checkpoint directory that becomes version 0 if there is no version yet."""
    trainer: Literal["native", "verl"] = "native"
    """`native`: torch on a CPU or one GPU. `verl`: FSDP2 over all GPUs of a node, started by torchrun in an environment
    of its own (docs/several-machines.md)."""
    sequence_parallel: int = 1
    """verl: GPUs that share each row (Ulysses); it divides the ranks and the model's attention heads."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU if there is one. On a GPU weights are fp32 and computed with in bf16."""
    seed: int = 0
    """Of the split into mini-batches; with the version it decides it, so a resumed run repeats."""

    lr: float = 1e-6
    """AdamW's learning rate."""
    beta2: float = 0.999
    """AdamW: decay of the squared gradient."""
    weight_decay: float = 0.01
    """AdamW's decoupled weight decay."""
    mini_batches: int = 4
    """Optimizer steps an update at most, one for each two trajectories; rows are dealt to them by chance."""
    micro_tokens: int = 0
    """Tokens of one forward and backward; bounds memory, changes no result. 0 suits the device."""
    gradient_checkpointing: bool = False
    """Activations are computed again for the gradient instead of kept: a third more work, a fraction of the memory."""

    kl_coef: float = 0.001
    """Weight of the penalty towards version 0; 0 saves the reference model and its forward."""
    kl_limit: float = 0.05
    """Most that one update may move the policy, in nats a token (k3 on a probe of its own rows): a step beyond it is
    halved until it fits, or undone, and the rest of the update is left out. 0 for no guard."""
    max_staleness: int = 4
    """Updates that a token's policy may lie back; what is older is dropped, not weighted. Guided rows, which were
    measured to need fresh samples, may lie back half as far."""
    credit: CreditSettings = CreditSettings()
    """From outcomes and labels to advantages."""

    keep_versions: int = 8
    """Newest version directories that are kept; version 0 and pinned ones are kept besides."""
    metrics_port: int = 9464
    """First port that is tried for Prometheus metrics; 0 for none. Where another learner has it, the next free one of
    16 is taken and logged (`metrics_served`); where all are taken, the learner does not start."""
    metrics_host: str = "127.0.0.1"
    """Address that metrics are served on."""
    tensorboard_dir: str = ""
    """Directory that TensorBoard's event files are written to; empty for none."""

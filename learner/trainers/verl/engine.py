"""The part of verl 0.9.1 that the trainer rests on: one engine, made, asked for log-probs, stepped.

verl calls its engine interface subject to change, so its version is pinned and every use of it is in this file. There
is no Ray, no hydra and no worker class on this path: `EngineRegistry` and an initialised process group are enough.
"""

# pyright: reportMissingImports=false
import json
import os
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from learner.errors import CheckpointInvalid, TrainerUnavailable
from learner.settings import BETA1, MAX_GRAD_NORM, LearnerSettings
from learner.trainers.verl.shards import Shard

Score = Callable[[Tensor, Tensor], Tensor | None]
"""Called with log-probs `(r,)` of a micro-batch's trained tokens and their columns `(r,)`; returns the loss, or None if
there is nothing to learn from them."""

VERSION = "0.9.1"
_REMEDY = (
    "run the learner from verl's own environment: `make .venv-verl/ready`, then "
    "`.venv-verl/bin/torchrun --nproc-per-node GPUS -m daemon.cli learner ...` (docs/several-machines.md), "
    "or set train.trainer = 'native'"
)


def require() -> None:
    """Check, without importing anything heavy, that verl can run here. Raises TrainerUnavailable: it cannot; the
    text says what to do."""
    if find_spec("verl") is None:
        raise TrainerUnavailable(f"verl is not installed beside this Python: {_REMEDY}")
    from importlib.metadata import version

    if version("verl") != VERSION:
        raise TrainerUnavailable(f"verl {version('verl')} is installed, this trainer is made for {VERSION}: {_REMEDY}")
    if os.environ.get("VERL_PLATFORM") == "cpu":
        return
    if not torch.cuda.is_available():
        raise TrainerUnavailable("there is no GPU: set train.trainer = 'native', or see nvidia-smi")
    if find_spec("flash_attn") is None:
        # Without it verl takes log-probs of bf16 logits in bf16, and packed rows need a T x T mask.
        raise TrainerUnavailable(
            "verl needs flash-attn on a GPU: pip install 'verl[fsdp]==0.9.1' (docs/several-machines.md)"
        )


def device() -> torch.device:
    """Where this rank computes."""
    if os.environ.get("VERL_PLATFORM") == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class Engine:
    """A causal model sharded over all ranks, with its optimizer. Every method is a collective."""

    def __init__(self, settings: LearnerSettings, weights: Path, *, frozen: bool = False) -> None:
        """`frozen`: only asked for log-probs, kept in bf16 on a GPU. CheckpointInvalid: no model that verl can load."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the engines that are not installed here
            from verl.trainer.config import CheckpointConfig
            from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
            from verl.workers.engine import EngineRegistry

        self.device = device()
        on_gpu = self.device.type == "cuda"
        width = "bf16" if on_gpu else "fp32"
        override: dict[str, Any] = _without_dropout(weights)
        override["attn_implementation"] = "flash_attention_2" if on_gpu else "sdpa"
        try:
            self._engine = EngineRegistry.new(
                "language_model",
                "fsdp2",
                model_config=HFModelConfig(
                    path=str(weights),
                    load_tokenizer=False,
                    use_remove_padding=True,
                    enable_gradient_checkpointing=settings.gradient_checkpointing and not frozen,
                    override_config=override,
                ),
                engine_config=FSDPEngineConfig(
                    strategy="fsdp2",
                    # Weights stay fp32 under bf16 arithmetic: at a learning rate of 1e-6 a bf16 weight never moves.
                    model_dtype=width if frozen else "fp32",
                    mixed_precision={"param_dtype": width, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
                    use_torch_compile=False,
                    # Without this every rank holds the whole model's gradients in fp32 between micro-batches.
                    use_no_sync_for_gradient_accumulation=False,
                    ulysses_sequence_parallel_size=settings.sequence_parallel,
                ),
                optimizer_config=FSDPOptimizerConfig(
                    lr=settings.lr,
                    betas=(BETA1, settings.beta2),
                    weight_decay=settings.weight_decay,
                    clip_grad=MAX_GRAD_NORM,
                    override_optimizer_config={"fused": on_gpu},
                ),
                checkpoint_config=CheckpointConfig(save_contents=[], load_contents=[]),
            )
            self._engine.initialize()
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointInvalid(f"{weights}: {error}") from error

    @property
    def module(self) -> Any:
        """The model; its parameters are DTensors, named as in transformers."""
        return self._engine.module

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self._engine.optimizer

    @property
    def part(self) -> int:
        """Which of `parts` shards of a mini-batch is this rank's; ranks that share a sequence share a shard."""
        return int(self._engine.get_data_parallel_rank())

    @property
    def parts(self) -> int:
        return int(self._engine.get_data_parallel_size())

    def score(self, shard: Shard, take: Score) -> None:
        """Show `take` the log-probs of the shard's trained tokens, without gradient."""
        with self._engine.eval_mode():
            self._engine.infer_batch(self._tensors(shard), self._loss(take))

    def gradient(self, shard: Shard, loss: Score) -> None:
        """Compute the gradient of the sum of all ranks' losses, in place of the one before."""
        with self._engine.train_mode(zero_grad_on_exit=False):
            self._engine.optimizer_zero_grad()
            self._engine.forward_backward_batch(self._tensors(shard), self._loss(loss))

    def step(self) -> float:
        """One optimizer step with that gradient; its norm before clipping.

        If that is not finite, no step was taken.
        """
        with self._engine.train_mode():
            return float(self._engine.optimizer_step())

    def reduce(self, values: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        """`values` put together over the parts, in place."""
        dist.all_reduce(values, op=operation, group=self._engine.get_data_parallel_group())
        return values

    def _tensors(self, shard: Shard) -> Any:
        """The shard as verl takes it: jagged views of its packed tokens."""
        from verl.utils import tensordict_utils

        offsets = torch.from_numpy(shard.offsets)

        def jagged(values: Any) -> Tensor:
            return torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), offsets)

        # A plain 1 spares verl a second copy of the logits, several gigabytes at a full budget.
        plain = bool((shard.temperature == 1.0).all())
        temperature = {} if plain else {"temperature": torch.from_numpy(shard.temperature)}
        return tensordict_utils.get_tensordict(
            {
                "input_ids": jagged(shard.ids),
                "position_ids": jagged(shard.positions),
                "loss_mask": jagged(shard.columns >= 0),
                "columns": jagged(shard.columns),
                **temperature,
            },
            {
                **({"temperature": 1.0} if plain else {}),
                "use_remove_padding": True,
                "use_dynamic_bsz": True,
                "max_token_len_per_gpu": -(-shard.budget // self._engine.ulysses_sequence_parallel_size),
                "calculate_entropy": False,
            },
        )

    @staticmethod
    def _loss(take: Score) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
        def call(model_output: dict[str, Tensor], data: Any, dp_group: Any = None) -> tuple[Tensor, dict[str, Any]]:
            del dp_group
            log_probs: Tensor = model_output["log_probs"].values()
            columns: Tensor = data["columns"].values()
            # A token's log-prob stands where it is predicted, one before. No row's first token is trained, so that is
            # in the same row.
            at = (columns >= 0).nonzero()[:, 0]
            chosen = log_probs[at - 1].float()
            loss = take(chosen, columns[at])
            # FSDP takes the mean of the ranks' gradients; what is wanted is the sum.
            return (chosen.sum() * 0 if loss is None else loss * data["dp_size"]), {}

        return call


def _without_dropout(weights: Path) -> dict[str, float]:
    """Dropout off: verl trains in train mode, and log-probs under dropout are not comparable with an engine's."""
    try:
        config: dict[str, Any] = json.loads((weights / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointInvalid(f"{weights}: config.json: {error}") from error
    names: Iterable[str] = (name for name in config if name.endswith(("dropout", "pdrop", "dropout_prob")))
    return {name: 0.0 for name in names if isinstance(config[name], float)}

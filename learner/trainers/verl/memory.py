"""What training a model takes per GPU under FSDP2, as formulas: `python -m learner.trainers.verl.memory --help`.

An estimate before the first run, not a measurement: nothing here was compared with an A100. Sources: ZeRO-3's division
of states over ranks (arXiv 1910.02054, section 5); activations under full recomputation (arXiv 2205.05198, section 4:
2sbh bytes a layer are kept, one layer's are rebuilt), counted here for a gated MLP and flash attention; FSDP2's
all-gather and reduce-scatter buffers (arXiv 2304.11277; torch.distributed.fsdp); logits as verl 0.9.1's engine keeps
them.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

FP32, BF16 = 4, 2
OVERHEAD = 3e9
"""Bytes for the CUDA context, NCCL's buffers and fragmentation; an assumption."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A dense decoder; the defaults are Qwen2.5-7B's."""

    params: float = 7.62e9
    layers: int = 28
    hidden: int = 3584
    intermediate: int = 18944
    key_value: int = 512
    """Heads of keys times their size."""
    vocab: int = 152064
    tied: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How it is trained."""

    gpus: int = 8
    tokens: int = 32768
    """Of a micro-batch on one GPU group: `learner.micro_tokens`."""
    sequence_parallel: int = 1
    reference: bool = True
    """Whether there is a KL penalty (`kl_coef` above 0)."""
    unit_temperature: bool = True
    """Whether every row was sampled at 1; else verl keeps a second copy of the logits."""


def estimate(shape: Shape, run: Run) -> dict[str, float]:
    """Bytes on one GPU at the peak, by what they are for."""
    share = shape.params / run.gpus
    ends = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    layer = (shape.params - ends) / shape.layers
    tokens = run.tokens / run.sequence_parallel
    rebuilt = 8 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate
    return {
        "weights, fp32, sharded": FP32 * share,
        "gradients, fp32, sharded": FP32 * share,
        "AdamW's two moments, fp32, sharded": 2 * FP32 * share,
        "copy to undo a step, fp32, sharded (kl_limit above 0)": FP32 * share,
        "reference model, bf16, sharded": BF16 * share if run.reference else 0.0,
        "embeddings and head, bf16, gathered": BF16 * float(ends),
        "two layers gathered in bf16": 2 * BF16 * layer,
        "one layer's gradient in bf16 and to be reduced in fp32": (BF16 + FP32) * layer,
        "inputs of all layers, bf16 (checkpoints)": BF16 * shape.layers * tokens * shape.hidden,
        "one layer's activations, bf16, rebuilt": BF16 * tokens * rebuilt,
        "logits, bf16": (1 if run.unit_temperature else 2) * BF16 * tokens * shape.vocab,
        "context, buffers, fragmentation (assumed)": OVERHEAD,
    }


def host(shape: Shape, run: Run) -> dict[str, float]:
    """Bytes of host memory while a version is written."""
    return {
        "rank 0: the weights, bf16": BF16 * shape.params,
        "each rank: its share of masters and moments": 3 * FP32 * shape.params / run.gpus,
    }


def read_shape(path: Path, params: float | None) -> Shape:
    """The shape in a Hugging Face config.json; without `params` they are counted from it, biases left out."""
    config = json.loads(path.read_bytes())
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    wide, narrow = heads * head, config.get("num_key_value_heads", heads) * head
    tied = bool(config.get("tie_word_embeddings", False))
    ends = config["vocab_size"] * hidden * (1 if tied else 2)
    layer = hidden * (2 * wide + 2 * narrow + 3 * config["intermediate_size"] + 2)
    return Shape(
        params=params or float(ends + layers * layer + hidden),
        layers=layers,
        hidden=hidden,
        intermediate=config["intermediate_size"],
        key_value=narrow,
        vocab=config["vocab_size"],
        tied=tied,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the estimate; the exit status is 1 if it does not fit."""
    shape, run = Shape(), Run()
    parser = argparse.ArgumentParser(
        prog="python -m learner.trainers.verl.memory",
        description="Estimate the memory of the verl trainer per GPU. Formulas only: not compared with an A100.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the model's config.json; else the shape below")
    parser.add_argument("--params", type=float, help=f"parameters ({shape.params:g})")
    for name in ("layers", "hidden", "intermediate", "key_value", "vocab"):
        default = getattr(shape, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"({default}, Qwen2.5-7B)")
    parser.add_argument("--tied", action="store_true", help="embeddings and head are one")
    parser.add_argument("--gpus", type=int, default=run.gpus, help=f"({run.gpus})")
    parser.add_argument("--tokens", type=int, default=run.tokens, help=f"learner.micro_tokens ({run.tokens})")
    parser.add_argument("--sequence-parallel", type=int, default=1, help="learner.sequence_parallel (1)")
    parser.add_argument("--no-reference", action="store_true", help="kl_coef is 0")
    parser.add_argument("--other-temperatures", action="store_true", help="rows sampled at other than 1")
    parser.add_argument("--gpu-gb", type=float, default=80.0, help="memory of a GPU in 1e9 bytes (80)")
    given = parser.parse_args(argv)
    if min(given.gpus, given.tokens, given.sequence_parallel, given.layers) < 1 or given.gpus % given.sequence_parallel:
        parser.error("gpus, tokens, layers and sequence-parallel are at least 1, and sequence-parallel divides gpus")
    if given.config is not None:
        shape = read_shape(given.config, given.params)
    else:
        shape = Shape(
            params=given.params or shape.params,
            layers=given.layers,
            hidden=given.hidden,
            intermediate=given.intermediate,
            key_value=given.key_value,
            vocab=given.vocab,
            tied=given.tied,
        )
    run = Run(
        gpus=given.gpus,
        tokens=given.tokens,
        sequence_parallel=given.sequence_parallel,
        reference=not given.no_reference,
        unit_temperature=not given.other_temperatures,
    )
    parts = estimate(shape, run)
    total = sum(parts.values())
    print(f"{shape.params:.3g} parameters on {run.gpus} GPUs, {run.tokens} tokens a micro-batch, GB per GPU:")
    for what, size in parts.items():
        print(f"  {size / 1e9:7.1f}  {what}")
    print(f"  {total / 1e9:7.1f}  of {given.gpu_gb:.0f}: {'fits' if total < given.gpu_gb * 1e9 else 'does NOT fit'}")
    for what, size in host(shape, run).items():
        print(f"  {size / 1e9:7.1f}  host memory while saving, {what}")
    print("An estimate from formulas; not compared with an A100.")
    return int(total >= given.gpu_gb * 1e9)


if __name__ == "__main__":
    sys.exit(main())

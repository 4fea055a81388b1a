"""What a model takes before anything runs: parameters, memory, arithmetic, bytes on disk. Of shapes alone; no torch.

The learner's check before the start (`learner.fit`) and `evolved plan` rest on these formulas; docs/measured.md says
how far they were off. The native trainer's rows are counted from what autograd keeps of transformers' layers. The verl
trainer's: ZeRO-3's division of states over ranks (arXiv 1910.02054, section 5); activations under full recomputation
(arXiv 2205.05198, section 4), for a gated MLP and flash attention; FSDP2's all-gather and reduce-scatter buffers (arXiv
2304.11277); logits as verl 0.9.1's engine keeps them.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from learner.errors import ShapeUnknown
from learner.settings import LearnerSettings

FP32, BF16 = 4, 2
CPU_BUDGET, GPU_BUDGET = 2048, 32768
"""Tokens of a micro-batch unless `train.micro_tokens` says otherwise: what stays in a core's cache, and what keeps a
GPU busy."""
KEPT_LOGITS = 1 << 28
"""Elements of (trained tokens, vocabulary) that are kept for the gradient, 1 GiB in fp32; with more, the projection is
done twice."""
LOGIT_CHUNK = 1 << 26
"""Elements of a chunk where they are not kept."""
PROCESS = 0.6e9
"""Bytes of a process that has imported torch and transformers, and of what malloc keeps for itself."""
HOLES, MAPPED = 0.75, 32 << 20
"""On a CPU: of the activations, what glibc's malloc holds beside them and cannot use again (measured, docs/measured.md;
with a fixed `MALLOC_MMAP_THRESHOLD_` of 64 KiB there is none, and an update takes half as long again). What is larger
than `MAPPED` bytes it gives back to the system each time."""
CUDA = 3e9
"""Bytes of the CUDA context, NCCL's buffers and fragmentation; an assumption."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A dense decoder as transformers' Qwen2, Qwen3, Llama and Mistral are."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    tied: bool = False
    """Input and output embeddings are one."""
    biases: bool = True
    """Queries, keys and values have one (Qwen2)."""
    head_norms: bool = False
    """Each head's queries and keys are normalised (Qwen3)."""
    positions: int = 32768
    """Longest row."""

    @property
    def queries(self) -> int:
        """Channels of a layer's queries."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Channels of a layer's keys; of its values, too."""
        return self.key_value_heads * self.head_size

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every parameter that a checkpoint stores, its Hugging Face name and shape."""
        h, q, kv = self.hidden, self.queries, self.keys
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocabulary, h)}
        layer: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (q, h), "self_attn.k_proj.weight": (kv, h), "self_attn.v_proj.weight": (kv, h),
            "self_attn.o_proj.weight": (h, q), "mlp.gate_proj.weight": (self.intermediate, h),
            "mlp.up_proj.weight": (self.intermediate, h), "mlp.down_proj.weight": (h, self.intermediate),
            "input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,),
        }  # fmt: skip
        if self.biases:
            layer |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
        if self.head_norms:
            layer |= {"self_attn.q_norm.weight": (self.head_size,), "self_attn.k_norm.weight": (self.head_size,)}
        for number in range(self.layers):
            found |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
        found["model.norm.weight"] = (h,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocabulary, h)
        return found

    @property
    def parameters(self) -> int:
        """All of them; what is tied counts once."""
        return sum(math.prod(shape) for shape in self.tensors().values())

    @property
    def embedding(self) -> int:
        """Parameters of the input embeddings, as many as those of the output's."""
        return self.vocabulary * self.hidden

    @property
    def body(self) -> int:
        """Parameters of the layers and norms, the embeddings left out."""
        return self.parameters - self.embedding * (1 if self.tied else 2)


def qwen25(
    layers: int, hidden: int, intermediate: int, heads: int, key_value_heads: int, vocabulary: int, *, tied: bool
) -> Shape:
    """A Qwen2.5 of 128 channels a head, 64 in the smallest."""
    return Shape(
        layers=layers, hidden=hidden, intermediate=intermediate, heads=heads, key_value_heads=key_value_heads,
        head_size=hidden // heads, vocabulary=vocabulary, tied=tied,
    )  # fmt: skip


MODELS = {
    "0.5b": qwen25(24, 896, 4864, 14, 2, 151936, tied=True),
    "1.5b": qwen25(28, 1536, 8960, 12, 2, 151936, tied=True),
    "3b": qwen25(36, 2048, 11008, 16, 2, 151936, tied=True),
    "7b": qwen25(28, 3584, 18944, 28, 4, 152064, tied=False),
    "14b": qwen25(48, 5120, 13824, 40, 8, 152064, tied=False),
}
"""Qwen2.5, from the published config.json of each size."""


def read_shape(directory: Path) -> Shape:
    """The shape that config.json in `directory` tells. Raises ShapeUnknown: it cannot be read, or is of another kind
    of model than these formulas are for."""
    path = directory / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        kind = str(config.get("model_type", ""))
        if kind not in ("qwen2", "qwen3", "llama", "mistral"):
            raise ShapeUnknown(f"{path}: model_type {kind!r}; the formulas are for qwen2, qwen3, llama and mistral")
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            key_value_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biases=kind == "qwen2",
            head_norms=kind == "qwen3",
            positions=int(config.get("max_position_embeddings") or 32768),
        )
    except OSError as error:
        raise ShapeUnknown(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ShapeUnknown(f"{path}: {error!r}") from error


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How it is trained."""

    trainer: Literal["native", "verl"] = "native"
    gpus: int = 0
    """That share the model; the native trainer has one, or none: it computes on the CPU then."""
    tokens: int = CPU_BUDGET
    """Of a micro-batch; a longer row goes alone and takes more."""
    trained: int | None = None
    """Trained tokens of a micro-batch; None for all."""
    accumulates: bool = True
    """A mini-batch is more than one micro-batch: its gradient stands beside the next one's activations."""
    checkpointing: bool = False
    reference: bool = True
    """There is a KL penalty (`train.kl_coef` above 0)."""
    guard: bool = True
    """A step can be undone (`train.max_step_kl` above 0)."""
    sequence_parallel: int = 1
    unit_temperature: bool = True
    """Every row was sampled at temperature 1; else verl keeps a second copy of the logits."""


def training(settings: LearnerSettings, gpus: int) -> Training:
    """What `settings` mean on so many GPUs."""
    return Training(
        trainer=settings.trainer,
        gpus=gpus,
        tokens=settings.micro_tokens or (GPU_BUDGET if gpus else CPU_BUDGET),
        checkpointing=settings.gradient_checkpointing,
        reference=settings.kl_coef > 0,
        guard=settings.kl_limit > 0,
        sequence_parallel=settings.sequence_parallel,
    )


def memory(shape: Shape, run: Training) -> dict[str, float]:
    """Bytes at an update's peak, by what they are for: of the process on a CPU, else on one GPU."""
    return _verl(shape, run) if run.trainer == "verl" else _native(shape, run)


def _native(shape: Shape, run: Training) -> dict[str, float]:
    on_gpu, p, v = run.gpus > 0, shape.parameters, shape.vocabulary
    states = {
        "weights, fp32": FP32 * p,
        "AdamW's two moments, fp32": 2 * FP32 * p,
        "reference, bf16" if on_gpu else "reference, fp32": (BF16 if on_gpu else FP32) * p if run.reference else 0,
    }
    logits = (run.tokens if run.trained is None else run.trained) * v
    logits = logits if logits <= KEPT_LOGITS else LOGIT_CHUNK
    kept = activations(shape, run)
    holes = HOLES if FP32 * run.tokens * shape.intermediate <= MAPPED and not on_gpu else 0.0
    computing = {
        "activations": kept,
        "what malloc does not give back": holes * kept,
        "logits": (FP32 + 2 * BF16 if on_gpu else FP32) * logits,
        # It stands beside what is kept: of tied embeddings until the input's comes, of others until it is added.
        "gradient of the output embeddings": (FP32 + BF16 if on_gpu else FP32) * shape.embedding,
        "autocast's copies, bf16": BF16 * shape.body if on_gpu else 0,
    }
    gradients = {"gradients, fp32": FP32 * p}
    undo = {"copy to undo a step, fp32": FP32 * p if run.guard else 0}
    # Two moments of an update can be the highest: all of a gradient but the last micro-batch's, or the step.
    forward = (gradients if run.accumulates else {}) | computing
    step = gradients | undo
    high = forward if sum(forward.values()) > sum(step.values()) else step
    base = {"CUDA's context, fragmentation (assumed)": CUDA} if on_gpu else {"process with torch": PROCESS}
    return {what: float(size) for what, size in (states | high | base).items()}


def activations(shape: Shape, run: Training) -> float:
    """Bytes that the native trainer's forward over a micro-batch keeps for the gradient."""
    h, q, kv, i = shape.hidden, shape.queries, shape.keys, shape.intermediate
    if run.gpus:
        # Norms and the residual stream in fp32; the inputs of q, k, v and of gate and up are cast once for each.
        layer = FP32 * 4 * h + BF16 * (5 * h + 3 * q + 2 * kv + 4 * i)
    else:
        # Two norms keep input, normalised and output; attention q, k, v and its output twice; the MLP four of its own.
        layer = FP32 * (6 * h + 3 * q + 2 * kv + 4 * i)
    ends = FP32 * 4 * h
    if run.checkpointing:
        return float(run.tokens * (FP32 * h * shape.layers + layer + ends))
    return float(run.tokens * (layer * shape.layers + ends))


def _verl(shape: Shape, run: Training) -> dict[str, float]:
    p = float(shape.parameters)
    share, ends = p / run.gpus, p - shape.body
    layer = shape.body / shape.layers
    tokens = run.tokens / run.sequence_parallel
    own = 6 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 4 * shape.intermediate
    kept = shape.hidden * shape.layers if run.checkpointing else 0
    return {
        "weights, fp32, sharded": FP32 * share,
        "gradients, fp32, sharded": FP32 * share,
        "AdamW's two moments, fp32, sharded": 2 * FP32 * share,
        "copy to undo a step, fp32, sharded": FP32 * share if run.guard else 0.0,
        "reference, bf16, sharded": BF16 * share if run.reference else 0.0,
        "embeddings and head, bf16, gathered": BF16 * ends,
        "two layers gathered in bf16": 2 * BF16 * layer,
        "one layer's gradient, bf16 and to be reduced in fp32": (BF16 + FP32) * layer,
        "activations": BF16 * tokens * (kept + own * (1 if run.checkpointing else shape.layers)),
        "logits, bf16": (1 if run.unit_temperature else 2) * BF16 * tokens * shape.vocabulary,
        "CUDA's context, NCCL, fragmentation (assumed)": CUDA,
    }


def host_memory(shape: Shape, run: Training) -> dict[str, float]:
    """Bytes of the memory of the machine that GPUs are in, while a full state is written."""
    return {
        "moments and masters on their way to disk": float(optimizer_bytes(shape)),
        "processes with torch": PROCESS * (run.gpus if run.trainer == "verl" else 1),
    }


def version_bytes(shape: Shape, width: int = BF16) -> int:
    """Bytes of a version's weights; the header of the file, some hundred a tensor, left out.

    Args:
        width: bytes of a weight in the file.
    """
    return width * shape.parameters


def optimizer_bytes(shape: Shape) -> int:
    """Bytes of a full state, which every `memory.STATE_EVERY`th version has: masters and two moments, fp32."""
    return 3 * FP32 * shape.parameters


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What an update learns from."""

    rows: int = 8
    length: int = 8000
    """Tokens of a row."""
    trained: float = 0.3
    """Share of them that the model said itself."""
    probe: int = 512
    """Trained tokens that the guard looks at after each step."""


def flops(shape: Shape, run: Training, work: Work, steps: int) -> float:
    """Floating-point operations of an update, with those of the reference, of the guard and of what is recomputed.

    Args:
        steps: optimizer steps.
    """
    tensors = {name: ("", size) for name, size in shape.tensors().items()}
    lengths = np.full(work.rows, work.length, np.int64)
    trained = max(1, round(work.rows * work.length * work.trained))
    once = update_flops(tensors, lengths, trained)
    # Of three passes of an update the first is a forward; whoever looks only makes one.
    forwards = float(run.reference) + float(run.checkpointing)
    forwards += steps * min(1.0, work.probe / trained) if run.guard else 0.0
    return once * (1 + forwards / 3)


PEAKS: tuple[tuple[str, float], ...] = (
    ("B200", 2250e12), ("H200", 989e12), ("H100 PCIe", 756e12), ("H100", 989e12), ("A100", 312e12), ("L40S", 362e12),
    ("A10G", 70e12), ("L4", 121e12),
)  # fmt: skip
"""bf16 FLOP/s without sparsity from the vendor's data sheets, by a part of the device's name; the first that fits."""


def peak_flops(device: str) -> float | None:
    """Most bf16 FLOP/s of the GPU that calls itself `device`; None for one that is not in the list."""
    return next((peak for name, peak in PEAKS if name in device), None)


def update_flops(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], lengths: npt.NDArray[np.int64], trained: int
) -> float:
    """FLOPs of one pass over a batch, forward and backward, of a dense decoder; tensors as in a version's manifest.

    Two a multiplication and addition, three passes (forward, and two products backward): 6 a weight and token, the
    output head at trained tokens only, and 6 T^2 a channel and layer for causal attention.
    """
    head = next((shape for name, (_, shape) in tensors.items() if name.endswith("lm_head.weight")), None)
    embedding = next((shape for name, (_, shape) in tensors.items() if name.endswith("embed_tokens.weight")), ())
    body = sum(
        math.prod(shape)
        for name, (_, shape) in tensors.items()
        if len(shape) == 2 and not name.endswith(("lm_head.weight", "embed_tokens.weight"))
    )
    channels = sum(shape[0] for name, (_, shape) in tensors.items() if name.endswith("q_proj.weight"))
    squares = float((lengths.astype(np.float64) ** 2).sum())
    outputs = math.prod(head or embedding) * trained
    return 6.0 * (body * float(lengths.sum()) + outputs + channels * squares)

"""Qwen2 in plain torch, for inference: HF checkpoint in, logits out, with a KV cache of fixed slots.

`Weights` are one version of the parameters, with the projections fused; they are built aside and replaced by one
assignment, so that a reload never touches what is serving. `forward` takes tokens of any rows in one flat batch: rows
that decode bring one token, rows that read their prompt bring a chunk. Shapes: N tokens of this pass, R rows in use, H
query heads, G key/value heads, D head size, C model width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from actors.ports.errors import CheckpointRefused
from adapters.engines.checkpoint import Checkpoint


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What of a HF `config.json` the computation depends on."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_parameters: dict[str, Any] | None = None
    """Where transformers 5 keeps rope_theta."""
    rope_scaling: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    use_sliding_window: bool = False
    head_dim: int | None = None
    hidden_act: str = "silu"
    eos_token_id: int | list[int] | None = None

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def theta(self) -> float:
        return float((self.rope_parameters or {}).get("rope_theta", self.rope_theta))


def read_config(directory: Path) -> Config:
    """The configuration in `directory`. Raises CheckpointRefused: no readable config.json, or not a plain Qwen2."""
    try:
        config = msgspec.convert(json.loads((directory / "config.json").read_bytes()), Config)
    except (OSError, ValueError) as error:
        raise CheckpointRefused(f"{directory}/config.json cannot be used: {error}") from error
    rope = (config.rope_parameters or config.rope_scaling or {}).get("rope_type", "default")
    if config.model_type != "qwen2" or config.hidden_act != "silu" or config.use_sliding_window or rope != "default":
        raise CheckpointRefused(
            f"{directory} is not a plain Qwen2 (model_type {config.model_type}, rope {rope}); serve it with vLLM"
        )
    return config


class _Layer(msgspec.Struct, frozen=True):
    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Weights(msgspec.Struct, frozen=True):
    """One version of the parameters, float32."""

    embedding: Tensor
    layers: tuple[_Layer, ...]
    norm: Tensor
    head: Tensor


def tensor_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes that a checkpoint of this configuration has."""
    width, size = config.hidden_size, config.head_size
    query, key = config.num_attention_heads * size, config.num_key_value_heads * size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, width),
        "model.norm.weight": (width,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, width)
    for i in range(config.num_hidden_layers):
        layer = f"model.layers.{i}."
        for name, rows in (("q", query), ("k", key), ("v", key)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, width)
            shapes[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{layer}self_attn.o_proj.weight"] = (width, query)
        shapes[f"{layer}mlp.gate_proj.weight"] = (config.intermediate_size, width)
        shapes[f"{layer}mlp.up_proj.weight"] = (config.intermediate_size, width)
        shapes[f"{layer}mlp.down_proj.weight"] = (width, config.intermediate_size)
        shapes[f"{layer}input_layernorm.weight"] = (width,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (width,)
    return shapes


def build_weights(config: Config, checkpoint: Checkpoint) -> Weights:
    """Fused float32 copies of the tensors of a checkpoint that has every name and shape of `tensor_shapes`."""

    def get(name: str) -> Tensor:
        array = checkpoint.array(name)
        tensor = torch.from_numpy(array)
        if checkpoint.tensors[name].dtype == "BF16":  # numpy has no bfloat16: the bits come as uint16
            tensor = tensor.view(torch.bfloat16)
        return tensor.to(torch.float32, copy=True)

    layers: list[_Layer] = []
    for i in range(config.num_hidden_layers):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        layers.append(
            _Layer(
                norm=get(f"model.layers.{i}.input_layernorm.weight"),
                qkv=torch.cat([get(f"{at}{name}_proj.weight") for name in "qkv"]),
                qkv_bias=torch.cat([get(f"{at}{name}_proj.bias") for name in "qkv"]),
                out=get(f"{at}o_proj.weight"),
                mlp_norm=get(f"model.layers.{i}.post_attention_layernorm.weight"),
                gate_up=torch.cat([get(f"{mlp}gate_proj.weight"), get(f"{mlp}up_proj.weight")]),
                down=get(f"{mlp}down_proj.weight"),
            )
        )
    embedding = get("model.embed_tokens.weight")
    head = embedding if config.tie_word_embeddings else get("lm_head.weight")
    return Weights(embedding, tuple(layers), get("model.norm.weight"), head)


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive tokens of one row in a pass."""

    row: int
    start: int
    """Position of the first token: as many tokens of the row are in the cache already."""
    tokens: list[int]


class _Piece(msgspec.Struct, frozen=True):
    """A chunk of more than one token: flat tokens `first` to `last` of `row`, which see `end` positions."""

    row: int
    first: int
    last: int
    end: int
    mask: Tensor | None
    """`(last - first, end)`, None for a chunk that starts its row: causal."""


class _Plan(msgspec.Struct, frozen=True):
    """Who attends to what in a pass. Rows that decode are attended together over the first rows of the cache, in place:
    picking them out would copy their cache. Rows among them that do not decode are computed for nothing."""

    rows: int
    """First rows of the cache that are attended together; 0 if none decodes."""
    length: int
    mask: Tensor | None
    """`(rows, 1, 1, length)`"""
    queries: Tensor | None
    """`(rows,)` flat token that each of these rows asks with; None if the tokens are just these rows."""
    tokens: Tensor | None
    """Flat tokens whose result is used, with `results`, the rows it comes from."""
    results: Tensor | None
    pieces: list[_Piece]


def _plan(chunks: Sequence[Chunk], at: Tensor, positions: Tensor) -> _Plan:
    singles: list[tuple[int, int, int]] = []  # flat token, row, position
    pieces: list[_Piece] = []
    flat = 0
    for chunk in chunks:
        n = len(chunk.tokens)
        if n == 1:
            singles.append((flat, chunk.row, chunk.start))
        else:
            mask = None
            if chunk.start:
                mask = positions[None, : chunk.start + n] <= at[flat : flat + n, None]
            pieces.append(_Piece(chunk.row, flat, flat + n, chunk.start + n, mask))
        flat += n
    if not singles:
        return _Plan(0, 0, None, None, None, None, pieces)
    tokens, rows, starts = zip(*singles, strict=True)
    count, length = rows[-1] + 1, max(starts) + 1
    if count == flat == len(singles):
        seen, queries, used, results = at, None, None, None
    else:
        queries, seen = torch.zeros(count, dtype=torch.long), torch.zeros(count, dtype=torch.long)
        used, results = torch.tensor(tokens), torch.tensor(rows)
        queries[results], seen[results] = used, torch.tensor(starts)
    mask = torch.zeros(count, length).masked_fill_(positions[None, :length] > seen[:, None], float("-inf"))
    return _Plan(count, length, mask[:, None, None], queries, used, results, pieces)


def _attend(plan: _Plan, q: Tensor, keys: Tensor, values: Tensor, shared: bool) -> Tensor:
    """Attention of q `(N, H, D)` over the cache of one layer `(slots, G, length, D)`: `(N, H, D)`."""
    o = q
    if plan.rows:
        picked = q if plan.queries is None else q[plan.queries]
        k, v = keys[: plan.rows, :, : plan.length], values[: plan.rows, :, : plan.length]
        o = F.scaled_dot_product_attention(picked.unsqueeze(2), k, v, attn_mask=plan.mask, enable_gqa=shared).squeeze(2)
        if plan.queries is None:
            return o
    mixed = torch.empty(q.shape)
    if plan.tokens is not None:
        mixed[plan.tokens] = o[plan.results]
    for piece in plan.pieces:
        tokens, row = slice(piece.first, piece.last), slice(piece.row, piece.row + 1)
        mixed[tokens] = F.scaled_dot_product_attention(
            q[tokens].transpose(0, 1).unsqueeze(0), keys[row, :, : piece.end], values[row, :, : piece.end],
            attn_mask=piece.mask, is_causal=piece.mask is None, enable_gqa=shared,
        )[0].transpose(0, 1)  # fmt: skip
    return mixed


class Model:
    """Weights, rotary tables and the KV cache.

    `cache` is `(layers, 2, slots, G, length, D)`: keys and values of `slots` rows of at most `length` tokens.
    """

    def __init__(self, config: Config, weights: Weights, *, slots: int, length: int) -> None:
        self.config, self.weights, self.slots, self.length = config, weights, slots, length
        heads, size = config.num_key_value_heads, config.head_size
        # zeros are mapped lazily: slots that are never used cost no memory.
        self.cache = torch.zeros(config.num_hidden_layers, 2, slots, heads, length, size)
        inverse = 1.0 / config.theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), inverse)
        self._cos = torch.cat((angles, angles), -1).cos()
        # rotate_half negates the first half: the sign sits in the table, which saves an operation a layer.
        self._sin = torch.cat((-angles, angles), -1).sin()
        self._places = torch.arange(slots * heads).view(slots, heads) * length
        self._positions = torch.arange(length)

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run `chunks` (each row at most once, in ascending order of rows) and put their keys and values in the cache.

        Returns:
            Hidden states before the final norm, `(N, C)`, in the order of the chunks.
        """
        config, size = self.config, self.config.head_size
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        shared = heads != groups
        rows = torch.tensor([chunk.row for chunk in chunks for _ in chunk.tokens])
        at = torch.tensor([p for chunk in chunks for p in range(chunk.start, chunk.start + len(chunk.tokens))])
        ids = torch.tensor([token for chunk in chunks for token in chunk.tokens])
        places = (self._places[rows] + at[:, None]).view(-1)  # (N * G,) into the cache of a layer
        cos, sin = self._cos[at].unsqueeze(1), self._sin[at].unsqueeze(1)  # (N, 1, D)
        plan = _plan(chunks, at, self._positions)
        half = size // 2
        x = F.embedding(ids, self.weights.embedding)
        for layer, (keys, values) in zip(self.weights.layers, self.cache, strict=True):
            h = F.rms_norm(x, (config.hidden_size,), layer.norm, config.rms_norm_eps)
            y = F.linear(h, layer.qkv, layer.qkv_bias).view(-1, heads + 2 * groups, size)
            qk = y[:, : heads + groups]
            qk = torch.addcmul(qk * cos, torch.cat((qk[..., half:], qk[..., :half]), -1), sin)
            keys.view(-1, size).index_copy_(0, places, qk[:, heads:].reshape(-1, size))
            values.view(-1, size).index_copy_(0, places, y[:, heads + groups :].reshape(-1, size))
            o = _attend(plan, qk[:, :heads], keys, values, shared)
            x = x + F.linear(o.reshape(-1, heads * size), layer.out)
            h = F.rms_norm(x, (config.hidden_size,), layer.mlp_norm, config.rms_norm_eps)
            gate, up = F.linear(h, layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """`(n, V)` from hidden states `(n, C)`."""
        h = F.rms_norm(hidden, (self.config.hidden_size,), self.weights.norm, self.config.rms_norm_eps)
        return F.linear(h, self.weights.head)

"""Plays many episodes at once on one CPU core, keeping the exact token ids and log-probs of what was sampled.

Sampling is most of an ablation's cost, so this has its own forward pass for the demo's Qwen2: norms folded into the
matrices behind them, a cache without holes, openings computed once however many rows share them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from tests.warmstart.chat import END

ROWS = 64
"""Rows played together: their keys and values still fit into a core's cache."""
TURN_TOKENS = 32
"""Longest turn; one that is cut there gets its end appended, unsampled."""
GROWTH = 64
"""Tokens by which the cache grows."""
SPARSE = 0.4
"""Share of the rows up to which they are picked out of the cache."""
_MASKED = -1e9


class Episode(Protocol):
    """One attempt, in text."""

    opening: str
    """Prompt of the first turn."""

    def act(self, text: str) -> str | None:
        """Take the model's turn, without its end token; returns what follows that token, None at the end."""
        ...


class Tokens(msgspec.Struct):
    """The token row of one attempt; all lists have one entry a token."""

    ids: list[int]
    steps: list[int]
    """Turn that sampled the token, -1 for what was read."""
    logprobs: list[float]
    """Nats, 0 for what was read."""


class Shape(msgspec.Struct, frozen=True):
    """What a checkpoint's config.json says of its form."""

    num_attention_heads: int
    num_hidden_layers: int
    hidden_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float


class _Layer(msgspec.Struct, frozen=True):
    """Transposed weights of one layer, its norms folded in."""

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Weights:
    """A Qwen2 without grouped heads, as matrices to multiply with."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        t = load_file(directory / "model.safetensors")
        self.shape = shape
        self.embedding = t["model.embed_tokens.weight"]
        self.layers: list[_Layer] = []
        for number in range(shape.num_hidden_layers):
            at = f"model.layers.{number}."
            norm, after = t[at + "input_layernorm.weight"], t[at + "post_attention_layernorm.weight"]
            parts = [at + f"self_attn.{name}_proj." for name in "qkv"]
            self.layers.append(
                _Layer(
                    (torch.cat([t[part + "weight"] for part in parts]) * norm).T.contiguous(),
                    torch.cat([t[part + "bias"] for part in parts]),
                    t[at + "self_attn.o_proj.weight"].T.contiguous(),
                    (torch.cat([t[at + f"mlp.{name}_proj.weight"] for name in ("gate", "up")]) * after).T.contiguous(),
                    t[at + "mlp.down_proj.weight"].T.contiguous(),
                )
            )
        self.head = (t["lm_head.weight"] * t["model.norm.weight"]).T.contiguous()
        size = shape.hidden_size // shape.num_attention_heads
        angles = torch.arange(shape.max_position_embeddings)[:, None] * shape.rope_theta ** -(
            torch.arange(0, size, 2) / size
        )
        self.cos, self.sin = torch.cat((angles, angles), 1).cos(), torch.cat((angles, angles), 1).sin()


class Player:
    """A policy with its tokenizer, ready to play."""

    def __init__(self, weights: Weights, tokenizer: Tokenizer) -> None:
        self.weights, self._tokenizer = weights, tokenizer
        self._end = tokenizer.token_to_id(END)
        self._known: dict[str, list[int]] = {}

    @torch.inference_mode()
    def play(self, episodes: Sequence[Episode], generator: torch.Generator) -> list[Tokens]:
        """Play all `episodes` to their end, or until the context is full; their tokens in the same order."""
        found: list[Tokens] = []
        for first in range(0, len(episodes), ROWS):
            found += self._play(episodes[first : first + ROWS], generator)
        return found

    def encode(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self._tokenizer.encode(text).ids
        return self._known[text]

    def _play(self, episodes: Sequence[Episode], generator: torch.Generator) -> list[Tokens]:
        openings = [self.encode(episode.opening) for episode in episodes]
        done = [Tokens(list(ids), [-1] * len(ids), [0.0] * len(ids)) for ids in openings]
        cache, logits = _Cache.open(self.weights, openings)
        live, turn = list(range(len(episodes))), 0
        room = self.weights.shape.max_position_embeddings
        while live:
            self._turn(cache, logits, [done[i] for i in live], turn, generator)
            stay: list[int] = []
            pending: list[list[int]] = []
            for row, i in enumerate(live):
                tokens = done[i]
                ended = tokens.ids[-1] == self._end
                begin = tokens.steps.index(turn)
                said = tokens.ids[begin : -1 if ended else None]
                after = episodes[i].act(self._tokenizer.decode(said, skip_special_tokens=False))
                if after is None:
                    continue
                read = [*([] if ended else [self._end]), *self.encode(after)]
                if len(tokens.ids) + len(read) + TURN_TOKENS >= room:
                    continue
                # The last sampled token has not been through the model yet.
                pending.append([tokens.ids[-1], *read])
                tokens.ids += read
                tokens.steps += [-1] * len(read)
                tokens.logprobs += [0.0] * len(read)
                stay.append(row)
            if stay:
                cache.keep(stay)
                logits = cache.feed(pending)
            live = [live[row] for row in stay]
            turn += 1
        return done

    def _turn(
        self, cache: "_Cache", logits: Tensor, rows: Sequence[Tokens], turn: int, generator: torch.Generator
    ) -> None:
        """Sample until every row has ended its turn."""
        going, count = list(range(len(rows))), 0
        while True:
            ids, logprobs = draw(logits, generator)
            still: list[int] = []
            for row, token, logprob in zip(going, ids, logprobs, strict=True):
                rows[row].ids.append(token)
                rows[row].steps.append(turn)
                rows[row].logprobs.append(logprob)
                if token != self._end:
                    still.append(row)
            count += 1
            if not still or count == TURN_TOKENS:
                return
            going = still
            logits = cache.feed([[rows[row].ids[-1]] for row in going], going)


def draw(logits: Tensor, generator: torch.Generator) -> tuple[list[int], list[float]]:
    """One token for each row of `(n, V)` logits at temperature 1, and its log-prob."""
    # By the inverse of the distribution function: one random number a row, not one a word. In double precision the
    # product stays below the total, so a token without probability is never hit.
    mass = torch.softmax(logits, -1).cumsum(-1)
    at = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64) * mass[:, -1:]
    ids = (mass <= at).sum(-1)
    logprobs = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)
    return ids.tolist(), logprobs.clamp_(max=0.0).tolist()


class _Cache:
    """Keys and values of rows of different length, each row's without holes."""

    def __init__(self, weights: Weights, rows: int, room: int) -> None:
        shape = weights.shape
        self._weights, self._heads = weights, shape.num_attention_heads
        size = shape.hidden_size // self._heads
        self._size = size
        self._kv = [
            (torch.zeros(rows, self._heads, room, size), torch.zeros(rows, self._heads, room, size))
            for _ in weights.layers
        ]
        self._lengths = torch.zeros(rows, dtype=torch.long)

    @classmethod
    def open(cls, weights: Weights, openings: Sequence[list[int]]) -> tuple["_Cache", Tensor]:
        """A cache that has read each row's opening, and the logits behind it, `(B, V)`.

        What all openings begin with is read once, and each different opening once.
        """
        unique = list(dict.fromkeys(map(tuple, openings)))
        shared = 0
        shortest = min(map(len, unique)) - 1
        while shared < shortest and len({ids[shared] for ids in unique}) == 1:
            shared += 1
        cache = cls(weights, 1, GROWTH)
        if shared:
            cache.feed([list(unique[0][:shared])])
        cache.keep([0] * len(unique))
        logits = cache.feed([list(ids[shared:]) for ids in unique])
        place = {ids: number for number, ids in enumerate(unique)}
        rows = [place[tuple(ids)] for ids in openings]
        cache.keep(rows)
        return cache, logits[rows]

    def keep(self, rows: list[int]) -> None:
        """Make `rows` the rows, in that order, as often as each is named."""
        if rows == list(range(len(self._lengths))):
            return
        chosen = torch.tensor(rows)
        self._kv = [(keys[chosen], values[chosen]) for keys, values in self._kv]
        self._lengths = self._lengths[chosen]

    def feed(self, tokens: list[list[int]], rows: list[int] | None = None) -> Tensor:
        """Append `tokens` to `rows` (None for all); returns the logits after each one's last, `(n, V)`."""
        w, n = self._weights, len(tokens)
        width = max(map(len, tokens))
        at = torch.arange(len(self._lengths)) if rows is None else torch.tensor(rows)
        lengths = self._lengths[at]
        counts = torch.tensor([len(row) for row in tokens])
        ids = torch.tensor([row + [0] * (width - len(row)) for row in tokens])
        slots = lengths[:, None] + torch.arange(width)  # (n, w); what padding writes is overwritten before it is seen
        slots.clamp_(max=w.shape.max_position_embeddings - 1)
        used = int(slots.max()) + 1
        self._grow(used)
        # Picking rows out of the cache copies them: computing some rows for nothing is cheaper while most are wanted.
        every = n < len(self._lengths) and n > SPARSE * len(self._lengths)
        some = n <= SPARSE * len(self._lengths)
        hidden = (torch.arange(used) > slots[:, :, None])[:, None]
        mask = torch.zeros(hidden.shape).masked_fill_(hidden, _MASKED)  # (n, 1, w, L)
        if every:
            mask = torch.zeros(len(self._lengths), *mask.shape[1:]).index_copy_(0, at, mask)
        cos, sin = w.cos[slots][:, :, None], w.sin[slots][:, :, None]
        x = w.embedding[ids]  # (n, w, d)
        for layer, (keys, values) in zip(w.layers, self._kv, strict=True):
            q, k, v = (
                torch.addmm(layer.qkv_bias, self._normed(x).view(n * width, -1), layer.qkv)
                .view(n, width, 3, self._heads, self._size)
                .unbind(2)
            )
            keys[at[:, None], :, slots] = _turned(k, cos, sin)
            values[at[:, None], :, slots] = v
            q = _turned(q, cos, sin).transpose(1, 2) * self._size**-0.5
            if every:
                q = torch.zeros(len(self._lengths), *q.shape[1:]).index_copy_(0, at, q)
            k, v = (keys[at, :, :used], values[at, :, :used]) if some else (keys[:, :, :used], values[:, :, :used])
            scores = torch.matmul(q, k.transpose(2, 3)).add_(mask)
            seen = torch.matmul(torch.softmax(scores, -1), v)
            seen = seen[at] if every else seen
            x = x + (seen.transpose(1, 2).reshape(n * width, -1) @ layer.out).view_as(x)
            gate, up = (self._normed(x).view(n * width, -1) @ layer.gate_up).chunk(2, -1)
            x = x + ((torch.nn.functional.silu(gate) * up) @ layer.down).view_as(x)
        self._lengths[at] = lengths + counts
        return self._normed(x[torch.arange(n), counts - 1]) @ w.head

    def _normed(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._weights.shape.rms_norm_eps)

    def _grow(self, used: int) -> None:
        room = self._kv[0][0].shape[2]
        if used > room:
            more = (used - room + GROWTH - 1) // GROWTH * GROWTH
            self._kv = [
                (torch.nn.functional.pad(k, (0, 0, 0, more)), torch.nn.functional.pad(v, (0, 0, 0, more)))
                for k, v in self._kv
            ]


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin

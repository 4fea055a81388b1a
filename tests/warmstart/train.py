"""Supervised training of the warm start: a copy drill, then weighted imitation of demonstrations.

The drill (random tokens, repeated) builds the circuit that copies a token from where it stood before; the names held
out for drifts take part in it, and in nothing else. Then demonstrations, with the drill now and then so that the
circuit stays. Three choices carried the measured result: Muon for the hidden matrices, four times the weight on entity
tokens (a wrong id is the error that matters), and a fifth of it on what the model only reads.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import Qwen2ForCausalLM

from tests.warmstart.chat import Segment
from tests.warmstart.tokenizer import single

Batch = tuple[torch.Tensor, torch.Tensor]
"""Token ids `(B, T)` int64 and weights `(B, T)` float32, zero on the padding at the right."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Words with a part of their own in training; each is one token."""

    entities: tuple[str, ...]
    """What calls are about: people, cities, ids, tool names and their parts."""
    names: tuple[str, ...]
    """Parts of tool names, which the drill repeats more often than other tokens."""
    held_out: tuple[str, ...]
    """Names that only the drill may contain. Imitation does not push their probability down either: a token that is
    never the target would be unlearnt."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the warm start is trained; the defaults make the shipped checkpoint."""

    drill_steps: int = 250
    imitation_steps: int = 1150
    drill_every: int = 6
    """Steps from one drill batch to the next during imitation."""
    batch: int = 16
    """Conversations an update."""
    drill_batch: int = 32
    muon_lr: float = 0.01
    adamw_lr: float = 3e-3
    warmup: int = 40
    entity_weight: float = 4.0
    read_weight: float = 0.2
    """Weight of tokens that the model reads and does not write."""
    max_norm: float = 1.0


def train(
    model: Qwen2ForCausalLM,
    tokenizer: Tokenizer,
    examples: Iterator[Sequence[Segment]],
    words: Words,
    *,
    settings: Settings,
    seed: int,
    progress: Callable[[str], None],
) -> float:
    """Train `model` in place on endless conversations, in segments that are tokenized one by one; CPU seconds used.

    The same arguments give the same weights on the same build of torch with one thread.
    """
    began = time.process_time()
    rng = random.Random(f"train-{seed}")
    drill = _Drill(tokenizer, words, settings.drill_batch, rng)
    batches = _batches(tokenizer, examples, words, settings, rng)
    reserved = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.bool)
    reserved[single(tokenizer, words.held_out)] = True
    optimizers, rates = _optimizers(model, settings)
    total = settings.drill_steps + settings.imitation_steps
    entity_loss = drill_loss = float("nan")
    model.train()
    for step in range(total):
        imitating = step >= settings.drill_steps
        at, of = (step - settings.drill_steps, settings.imitation_steps) if imitating else (step, settings.drill_steps)
        scale = _schedule(at, of, settings.warmup)
        for optimizer, rate in zip(optimizers, rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
        if not imitating or step % settings.drill_every == 0:
            loss = drill.loss(model, 40 if imitating else 20)
            drill_loss = loss.item()
            _update(model, optimizers, loss, settings.max_norm)
        if imitating:
            loss, entity_loss = _imitation_loss(model, next(batches), reserved, settings.entity_weight)
            _update(model, optimizers, loss, settings.max_norm)
        if (step + 1) % 25 == 0 or step + 1 == total:
            seconds = time.process_time() - began
            progress(f"step {step + 1}/{total}, {seconds:.0f} s: entities {entity_loss:.3f}, drill {drill_loss:.3f}")
    model.eval()
    return time.process_time() - began


def _schedule(step: int, of: int, warmup: int) -> float:
    """Factor on the learning rates: up, flat, and from half way down to a fiftieth."""
    return min(1.0, (step + 1) / warmup) * min(1.0, max(0.02, 2 * (1 - step / of)))


def _optimizers(model: Qwen2ForCausalLM, settings: Settings) -> tuple[list[torch.optim.Optimizer], tuple[float, float]]:
    """Muon for the hidden weight matrices, AdamW for embeddings, norms and biases."""
    hidden = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    taken = {id(parameter) for parameter in hidden}
    others = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    adamw = torch.optim.AdamW(others, lr=settings.adamw_lr, betas=(0.9, 0.98), weight_decay=0.0)
    muon = torch.optim.Muon(hidden, lr=settings.muon_lr, weight_decay=0.0, momentum=0.95)
    return [adamw, muon], (settings.adamw_lr, settings.muon_lr)


def _update(
    model: Qwen2ForCausalLM, optimizers: list[torch.optim.Optimizer], loss: torch.Tensor, max_norm: float
) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    for optimizer in optimizers:
        optimizer.step()


def hidden_states(model: Qwen2ForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """`(B, T)` token ids to `(B, T, d)` states before the head."""
    return model.model(input_ids=ids, use_cache=False).last_hidden_state


class _Drill:
    """Batches of random tokens that are repeated; the loss is on the repetition."""

    def __init__(self, tokenizer: Tokenizer, words: Words, batch: int, rng: random.Random) -> None:
        self._batch, self._rng = batch, rng
        self._all = sorted(tokenizer.get_added_tokens_decoder())  # all but single bytes
        self._names = single(tokenizer, (*words.names, *words.held_out))
        self._held_out = single(tokenizer, words.held_out)

    def loss(self, model: Qwen2ForCausalLM, longest: int) -> torch.Tensor:
        """Mean cross-entropy of a repeated stretch of at most `longest` tokens behind as many others, nats.

        The lengths must vary: with a few fixed ones the repetition is learnt by counting.
        """
        rng = self._rng
        before, length = rng.randint(0, longest), rng.randint(5, longest)
        first = torch.tensor([self._row(before + length) for _ in range(self._batch)])
        ids = torch.cat((first, first[:, before:]), dim=1)
        states = hidden_states(model, ids[:, :-1])[:, before + length :]
        logits = model.lm_head(states)
        return F.cross_entropy(logits.flatten(0, 1), ids[:, before + length + 1 :].flatten())

    def _row(self, length: int) -> list[int]:
        rng = self._rng
        row = rng.choices(self._names if rng.random() < 0.4 else self._all, k=length)
        if not self._held_out:
            return row
        return [rng.choice(self._held_out) if rng.random() < 0.06 else token for token in row]


def _batches(
    tokenizer: Tokenizer,
    examples: Iterator[Sequence[Segment]],
    words: Words,
    settings: Settings,
    rng: random.Random,
) -> Iterator[Batch]:
    """Endless batches of conversations of about the same length, which saves padding."""
    entities = set(single(tokenizer, words.entities))
    cache: dict[str, list[int]] = {}
    while True:
        rows: list[tuple[list[int], list[float]]] = []
        for _ in range(8 * settings.batch):
            ids: list[int] = []
            weights: list[float] = []
            for text, written in next(examples):
                if text not in cache:
                    if len(cache) > 100_000:
                        cache.clear()
                    cache[text] = tokenizer.encode(text).ids
                tokens = cache[text]
                ids += tokens
                weights += [
                    (settings.entity_weight if token in entities else 1.0) if written else settings.read_weight
                    for token in tokens
                ]
            rows.append((ids, weights))
        rows.sort(key=lambda row: len(row[0]))
        groups = [rows[i : i + settings.batch] for i in range(0, len(rows), settings.batch)]
        rng.shuffle(groups)
        yield from map(_pad, groups)


def _pad(rows: Sequence[tuple[list[int], list[float]]]) -> Batch:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    weights = torch.zeros(len(rows), longest)
    for i, (row_ids, row_weights) in enumerate(rows):
        ids[i, : len(row_ids)] = torch.tensor(row_ids)
        weights[i, : len(row_ids)] = torch.tensor(row_weights)
    return ids, weights


def _imitation_loss(
    model: Qwen2ForCausalLM, batch: Batch, reserved: torch.Tensor, entity_weight: float
) -> tuple[torch.Tensor, float]:
    """The weighted mean cross-entropy of a batch, and the plain mean over written entity tokens, in nats."""
    ids, weights = batch
    chosen = weights[:, 1:] > 0
    targets, weights = ids[:, 1:][chosen], weights[:, 1:][chosen]
    logits = model.lm_head(hidden_states(model, ids[:, :-1])[chosen])
    logits = logits.masked_fill(reserved[None, :], -1e9)
    losses = F.cross_entropy(logits, targets, reduction="none")
    entity = losses[weights >= entity_weight]
    return (losses * weights).sum() / weights.sum(), entity.mean().item() if len(entity) else float("nan")

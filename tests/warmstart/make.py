"""The warm start from nothing: vocabulary, model, training, files; and how often it solves what it is given."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from tests.warmstart import checkpoint, model, tokenizer
from tests.warmstart.sampler import Episode, Sampler
from tests.warmstart.train import Progress, Segment, Settings, Words, train


class Made(msgspec.Struct, frozen=True):
    """A trained warm start, also on disk."""

    model: Qwen2ForCausalLM
    tokenizer: Tokenizer
    seconds: float
    """CPU seconds of training."""
    parameters: int
    """Numbers in the checkpoint, the untied head included."""


def make(
    directory: Path,
    *,
    texts: Iterable[str],
    pieces: Sequence[str] = (),
    examples: Iterator[Sequence[Segment]],
    words: Words,
    settings: Settings,
    seed: int,
    progress: Callable[[Progress], None],
    sizes: Mapping[str, int] | None = None,
    start: Path | None = None,
) -> Made:
    """Train from `seed` and write the checkpoint to `directory`.

    Runs on one thread, and leaves torch set so: more threads add in another order, and the same seed would not give the
    same weights.

    Args:
        texts: what the vocabulary is made from; `pieces` and `words` are added.
        examples: endless conversations to imitate.
        sizes: of the model, as `model.configuration` takes them; None: the travel desk's.
        start: a checkpoint to go on from, whose vocabulary may be another; None: from nothing.
    """
    torch.set_num_threads(1)
    made_tokenizer = tokenizer.build(texts, (*pieces, *words.entities, *words.names, *words.held_out))
    config = model.configuration(made_tokenizer.get_vocab_size(), **sizes or {})
    made_model = model.build(config, seed)
    if start is not None:
        old, before = checkpoint.load(start)
        model.take_over(made_model, made_tokenizer.get_vocab(), old, before.get_vocab())
    seconds = train(made_model, made_tokenizer, examples, words, settings=settings, seed=seed, progress=progress)
    checkpoint.save(made_model, made_tokenizer, config, directory)
    parameters = sum(parameter.numel() for parameter in made_model.parameters()) + made_model.lm_head.weight.numel()
    return Made(made_model, made_tokenizer, seconds, parameters)


def success(
    made: Made, attempts: Sequence[Episode], *, greedy: bool, seed: int = 0, batch: int = 64, turn_tokens: int = 32
) -> float:
    """Which share of `attempts` the model solves, sampled at temperature 1 or greedily."""
    generator = None if greedy else torch.Generator().manual_seed(seed)
    sampler = Sampler(made.model, made.tokenizer, generator=generator, turn_tokens=turn_tokens)
    for first in range(0, len(attempts), batch):
        sampler.play(attempts[first : first + batch])
    return sum(attempt.solved for attempt in attempts) / len(attempts)

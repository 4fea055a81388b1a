"""Plays many episodes at once on one CPU core, by the embedded engine's own batch: the exact token ids and log-probs of
what was sampled, and no server in between."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from tokenizers import Tokenizer

from adapters.engines.checkpoint import open_checkpoint
from adapters.engines.embedded.batching import Batch, Limits, Run
from adapters.engines.embedded.model import Model, build_weights, read_config
from adapters.engines.embedded.sampling import Sampling
from tests.warmstart.chat import END

ROWS = 64
"""Rows played together: their keys and values still fit into a core's cache."""
TURN_TOKENS = 32
"""Longest turn; one that is cut there gets its end appended, unsampled."""


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

    def read(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.steps += [-1] * len(ids)
        self.logprobs += [0.0] * len(ids)


class Player:
    """The policy of a checkpoint, ready to play."""

    def __init__(self, directory: Path) -> None:
        torch.set_num_threads(1)
        self._config = read_config(directory)
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._end = self._tokenizer.token_to_id(END)
        self._limits = Limits(max_tokens=TURN_TOKENS, ends=frozenset({self._end}))
        weights = build_weights(self._config, open_checkpoint(directory))
        model = Model(self._config, weights, slots=ROWS, length=self._config.max_position_embeddings)
        self._batch = Batch(model, "", clock=lambda: 0.0, decode=self._tokenizer.decode)

    def load(self, directory: Path) -> None:
        """Go on with other weights of the same model."""
        self._batch.replace_weights(build_weights(self._config, open_checkpoint(directory)))

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def play(self, episodes: Sequence[Episode], noise: random.Random) -> list[Tokens]:
        """Play all `episodes` to their end, or until the context is full; their tokens in the same order."""
        played = [Tokens([], [], []) for _ in episodes]
        turns: dict[Run, int] = {}

        def ask(number: int, read: list[int]) -> None:
            played[number].read(read)
            run = Run(played[number].ids, Sampling(), self._limits, noise)
            turns[run] = number
            self._batch.add(run)

        for number, episode in enumerate(episodes):
            ask(number, self.encode(episode.opening))
        while self._batch.busy:
            for run in self._batch.step():
                number = turns.pop(run)
                tokens, said = played[number], run.answer
                tokens.ids += said
                tokens.steps += [max(tokens.steps) + 1] * len(said)
                tokens.logprobs += run.logprobs
                ended = said[-1] == self._end
                text = self._tokenizer.decode(said[:-1] if ended else said, skip_special_tokens=False)
                after = episodes[number].act(text)
                read = [] if after is None else [*([] if ended else [self._end]), *self.encode(after)]
                if read and len(tokens.ids) + len(read) + TURN_TOKENS < self._batch.model.length:
                    ask(number, read)
        return played

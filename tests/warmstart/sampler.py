"""Plays episodes with the model: batched, with a KV cache, one turn after the other.

It measures the warm start, and is the plain reference that faster engines are tested against. The rows of a batch
differ in length at every turn; they share one cache in which each row's unused slots are masked, so that every row sees
exactly its own tokens at its own positions.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from tokenizers import Tokenizer
from transformers import DynamicCache, Qwen2ForCausalLM

from tests.warmstart.chat import END


class Episode(Protocol):
    """One attempt, in text."""

    opening: str
    """The prompt of the first turn."""
    solved: bool
    """Meaningful after the end."""

    def act(self, text: str) -> str | None:
        """Take the model's turn, without its end token; returns what follows that token, None at the end."""
        ...


class Sampler:
    """A model with its tokenizer, ready to play.

    Args:
        generator: source of the sampling noise; None takes the most probable token.
        turn_tokens: longest turn; a turn that is cut there gets its end appended.
    """

    def __init__(
        self,
        model: Qwen2ForCausalLM,
        tokenizer: Tokenizer,
        *,
        generator: torch.Generator | None,
        turn_tokens: int = 32,
    ) -> None:
        self._model, self._tokenizer, self._generator = model, tokenizer, generator
        self._turn_tokens = turn_tokens
        self._end = tokenizer.token_to_id(END)
        self._room = model.config.max_position_embeddings

    @torch.no_grad()
    def play(self, episodes: Sequence[Episode]) -> None:
        """Play all `episodes` to their end, or until the context is full."""
        cache = _Cache(self._model, len(episodes))
        live = list(episodes)
        pending = [self._tokenizer.encode(episode.opening).ids for episode in live]
        while live:
            turns = self._turn(cache, pending)
            rows: list[int] = []
            pending = []
            for i, (episode, tokens) in enumerate(zip(live, turns, strict=True)):
                ended = tokens[-1] == self._end
                text = self._tokenizer.decode(tokens[:-1] if ended else tokens, skip_special_tokens=False)
                after = episode.act(text)
                if after is None:
                    continue
                # The last sampled token has not been through the model yet.
                tail = [tokens[-1], *([] if ended else [self._end]), *self._tokenizer.encode(after).ids]
                if cache.length(i) + len(tail) + self._turn_tokens < self._room:
                    rows.append(i)
                    pending.append(tail)
            live = [live[i] for i in rows]
            cache.keep(rows)

    def _turn(self, cache: "_Cache", pending: list[list[int]]) -> list[list[int]]:
        """Feed `pending`, then sample until every row has ended its turn; returns each row's tokens."""
        logits = cache.feed(pending)
        turns: list[list[int]] = [[] for _ in pending]
        while True:
            drawn = self._draw(logits).tolist()
            for turn, token in zip(turns, drawn, strict=True):
                if not turn or (turn[-1] != self._end and len(turn) < self._turn_tokens):
                    turn.append(token)
            goes_on = [turn[-1] != self._end and len(turn) < self._turn_tokens for turn in turns]
            if not any(goes_on):
                return turns
            logits = cache.feed([[turn[-1]] if go else [] for turn, go in zip(turns, goes_on, strict=True)])

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        """One token for each row of `(B, V)` logits."""
        if self._generator is None:
            return logits.argmax(-1)
        noise = torch.rand(logits.shape, generator=self._generator).clamp_(1e-20, 1 - 1e-7)
        return (torch.log_softmax(logits, -1) - torch.log(-torch.log(noise))).argmax(-1)


class _Cache:
    """A KV cache for rows of different length: slots that a row does not use are masked."""

    def __init__(self, model: Qwen2ForCausalLM, rows: int) -> None:
        self._model = model
        self._past = DynamicCache(config=model.config)
        self._used = torch.zeros(rows, 0, dtype=torch.long)

    def length(self, row: int) -> int:
        """How many tokens of a row are in the cache."""
        return int(self._used[row].sum())

    def feed(self, rows: list[list[int]]) -> torch.Tensor:
        """Append tokens to each row, none to some; returns the logits after each row's last, `(B, V)`."""
        width = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        fresh = torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
            fresh[i, : len(row)] = 1
        lengths = self._used.sum(1, keepdim=True)
        self._used = torch.cat((self._used, fresh), dim=1)
        states = self._model.model(
            input_ids=ids,
            attention_mask=self._used,
            position_ids=(lengths + torch.arange(width)).clamp_(max=self._model.config.max_position_embeddings - 1),
            past_key_values=self._past,
            use_cache=True,
        ).last_hidden_state
        last = (fresh.sum(1) - 1).clamp(min=0)
        return self._model.lm_head(states[torch.arange(len(rows)), last])

    def keep(self, rows: list[int]) -> None:
        """Drop all other rows."""
        if len(rows) < len(self._used):
            chosen = torch.tensor(rows, dtype=torch.long)
            self._past.batch_select_indices(chosen)
            self._used = self._used[chosen]

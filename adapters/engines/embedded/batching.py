"""Continuous batching: runs join and leave between two tokens.

A run in use owns a row of the model's cache; rows are kept packed, so that a pass reads the cache in place. Each
`step` is one pass: rows that have read their prompt bring their last token, rows that have not bring a chunk of it,
at most `chunk_tokens` of prompt in all, so that nobody's stream stalls behind a long prompt.

Keep mode: `drop_cache` forgets every key and value while the runs stay. The next steps read prompt and answer so far
again, under whatever weights are there by then, and go on. Each token remembers the label of the weights that sampled
it.

Not thread-safe: one thread owns a batch (`worker.py`).
"""

import math
import random
from collections import deque
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from adapters.engines.embedded.model import Chunk, Model, Weights
from adapters.engines.embedded.prefix import PrefixCache
from adapters.engines.embedded.sampling import LOWEST, Sampling, draw


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends, and what it tells of itself."""

    max_tokens: int
    ends: frozenset[int] = frozenset()
    """Ids that end it; the one that did is part of the answer."""
    stop: tuple[str, ...] = ()
    """Texts that end it; the answer's text is what comes before."""
    scores_prompt: bool = False
    streamed: bool = False
    """Progress is told with every step, not only the end."""


class Run:
    """One answer in the making. Written by the batch's thread; a reader takes what `progress` told it of."""

    def __init__(self, prompt: list[int], sampling: Sampling, limits: Limits, generator: random.Random) -> None:
        self.sampling, self.limits, self.generator = sampling, limits, generator
        self.ids = list(prompt)
        """Prompt and answer so far."""
        self.prompt_tokens = len(prompt)
        self.logprobs: list[float] = []
        self.prompt_scores: list[float] = []
        """Log-probs of each token of the prompt but the first."""
        self.versions: list[tuple[str, int, int]] = []
        """Spans over the answer: label, start, end."""
        self.finish: str | None = None
        """stop, length, abort or error."""
        self.stop_text: str | None = None
        """The stop text that ended it."""
        self.first_token_at = self.started_at = self.finished_at = 0.0
        self.computed = 0
        """Tokens whose keys and values are in the cache."""
        self.cached_tokens = 0
        """Of these, at the start, from the prefix cache."""

    @property
    def answer(self) -> list[int]:
        return self.ids[self.prompt_tokens :]

    @property
    def produced(self) -> int:
        return len(self.ids) - self.prompt_tokens


class Batch:
    """Runs over one model."""

    def __init__(
        self,
        model: Model,
        label: str,
        *,
        clock: Callable[[], float],
        decode: Callable[[list[int]], str],
        chunk_tokens: int = 512,
        prefix_tokens: int = 32_768,
    ) -> None:
        """`decode` gives the text that a client sees, for stop texts; a pass reads `chunk_tokens` of prompts at most,
        and keys and values of `prefix_tokens` are kept of runs that are over."""
        self.model, self.label = model, label
        self.waiting: deque[Run] = deque()
        self.rows: list[Run] = []
        self.prefixes = PrefixCache(prefix_tokens)
        self.recomputed = 0
        """Runs whose cache was dropped under them."""
        self._clock, self._decode, self._chunk_tokens = clock, decode, chunk_tokens

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self.rows or self.waiting)

    def add(self, run: Run) -> None:
        """Queue a run; `step` admits it as soon as a row is free."""
        self.waiting.append(run)

    def abort(self, run: Run, reason: str = "abort") -> None:
        """End a run now; does nothing if it is over."""
        if run.finish is not None:
            return
        if run in self.waiting:
            self.waiting.remove(run)
            self._end(run, reason)
        elif run in self.rows:
            self._end(run, reason)
            self._leave(self.rows.index(run))

    def drop_cache(self) -> None:
        """Forget all keys and values: runs in use read their tokens again, nothing of earlier runs is used."""
        self.prefixes.clear()
        for run in self.rows:
            run.computed = 0
            if run.produced == 0:
                run.prompt_scores.clear()
        self.recomputed += len(self.rows)

    def replace_weights(self, weights: Weights) -> None:
        """Serve other weights from the next step on. Keys and values of the old ones are dropped with them."""
        self.model.weights = weights
        self.drop_cache()

    @torch.inference_mode()
    def step(self) -> list[Run]:
        """One pass. Returns runs with news: those that are over, and streamed ones that have another token."""
        self._admit()
        chunks = self._plan()
        hidden = self.model.forward(chunks)
        ready: list[tuple[int, Run]] = []
        ends: list[int] = []
        scored: list[tuple[Run, int, int, int]] = []
        flat = 0
        for chunk in chunks:
            run, n = self.rows[chunk.row], len(chunk.tokens)
            run.computed += n
            if run.limits.scores_prompt and chunk.start < run.prompt_tokens - 1 and run.produced == 0:
                scored.append((run, flat, chunk.start, n))
            flat += n
            if run.computed == len(run.ids):
                ready.append((chunk.row, run))
                ends.append(flat - 1)
        for run, first, start, n in scored:
            self._score(run, hidden[first : first + n], start)
        if not ready:
            return []
        last = hidden if len(ends) == flat else hidden[ends]
        drawn = draw(self.model.logits(last), [r.sampling for _, r in ready], [r.generator for _, r in ready])
        now = self._clock()
        news: list[Run] = []
        over: list[int] = []
        for i, (row, run) in enumerate(ready):
            if math.isnan(drawn.logprobs[i]):
                self._spoilt(row, run)
            else:
                self._append(run, drawn.tokens[i], drawn.logprobs[i], now)
            if run.finish is not None:
                over.append(row)
                news.append(run)
            elif run.limits.streamed:
                news.append(run)
        for row in reversed(over):
            self._leave(row)
        return news

    def _admit(self) -> None:
        while self.waiting and len(self.rows) < self.model.slots:
            run = self.waiting.popleft()
            row = len(self.rows)
            self.rows.append(run)
            run.started_at = run.started_at or self._clock()
            if not run.limits.scores_prompt:
                run.computed = run.cached_tokens = self.prefixes.take(run.ids, self.model.cache[:, :, row])

    def _plan(self) -> list[Chunk]:
        budget = self._chunk_tokens
        chunks: list[Chunk] = []
        for row, run in enumerate(self.rows):
            start, end = run.computed, len(run.ids)
            if end - start > 1:
                if not budget:
                    continue
                end = min(end, start + budget)
                budget -= end - start
            chunks.append(Chunk(row, start, run.ids[start:end]))
        return chunks

    def _append(self, run: Run, token: int, logprob: float, now: float) -> None:
        place = run.produced
        # Order matters to readers of other threads: what belongs to a token is there before the token is.
        run.logprobs.append(logprob)
        if run.versions and run.versions[-1][0] == self.label:
            run.versions[-1] = (self.label, run.versions[-1][1], place + 1)
        else:
            run.versions.append((self.label, place, place + 1))
        run.ids.append(token)
        if not place:
            run.first_token_at = now
        limits = run.limits
        if token in limits.ends:
            self._end(run, "stop")
            return
        if limits.stop:
            text = self._decode(run.answer)
            run.stop_text = next((stop for stop in limits.stop if stop in text), None)
        if run.stop_text is not None:
            self._end(run, "stop")
        elif place + 1 >= limits.max_tokens or len(run.ids) >= self.model.length:
            self._end(run, "length")

    def _spoilt(self, row: int, run: Run) -> None:
        """End a run whose numbers overflowed. Its row is wiped: a masked NaN still spoils who attends over it later."""
        self.model.cache[:, :, row] = 0.0
        run.computed = 0
        self._end(run, "error")

    def _end(self, run: Run, reason: str) -> None:
        run.finished_at = self._clock()
        run.finish = reason

    def _leave(self, row: int) -> None:
        """Free a row; the last row moves into it."""
        run, cache = self.rows[row], self.model.cache
        self.prefixes.put(run.ids[: run.computed], cache[:, :, row])
        last = self.rows.pop()
        if last is not run:
            self.rows[row] = last
            cache[:, :, row, :, : last.computed] = cache[:, :, len(self.rows), :, : last.computed]

    def _score(self, run: Run, hidden: Tensor, start: int) -> None:
        """Log-probs of the prompt's tokens after position `start`, from hidden states `(n, C)` of the positions on."""
        n = min(len(hidden), run.prompt_tokens - 1 - start)
        logprobs = torch.log_softmax(self.model.logits(hidden[:n]), -1)
        targets = torch.tensor(run.ids[start + 1 : start + 1 + n])
        run.prompt_scores += logprobs.gather(1, targets[:, None])[:, 0].clamp_(min=LOWEST).tolist()

"""`LlmExtractor`: lessons from any endpoint that speaks OpenAI's chat completions.

A refusal, an answer that is cut and one that cannot be read yield nothing and are counted. Attempts are bounded, and so
are the tokens of an hour.
"""

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from actors.messages import Trajectory
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Insight
from adapters.chat.endpoint import ChatEndpoint
from adapters.chat.keys import read_key
from adapters.chat.quoting import fresh_mark
from adapters.chat.settings import EndpointSettings, settings_of
from adapters.extractors import prompt

_READ_AS = {"truncated": "cut", "refused": "refused", "rejected": "rejected", "too_long": "rejected"}
"""Problems of a reply as they are counted; all others are unreadable."""


class ExtractorSettings(EndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the extractor "llm"."""

    timeout: float = 60.0
    max_tokens: int = 800
    patience: float = 200.0
    """Seconds for one question, all attempts included."""
    limit: int = 3
    """Lessons of one call at most."""
    runs: int = 4
    """Trajectories of a side that one call shows."""
    tokens_per_hour: int = 200_000
    """Of prompts and answers together, as the endpoint counts them; where it does not, by length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.limit, self.runs, self.tokens_per_hour) < 1 or not self.patience > 0:
            raise ValueError("limit, runs and tokens_per_hour must be at least 1, patience above 0")


class LlmExtractor:
    """An `Extractor` over a chat endpoint; `aclose()` at the end.

    Args:

    Raises:
        AdapterNotSetUp: an option is missing or wrong, or there is no key where one should be.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._settings = settings = settings_of(ExtractorSettings, options)
        key = read_key(settings.key_env, settings.key_file)
        self._endpoint = ChatEndpoint(settings, key=key, rng=random.Random(), clock=time.time)
        self._clock = clock
        self.name = f"llm:{settings.model}"
        self._spent: deque[tuple[float, int]] = deque()
        self.counts: Counter[str] = self._endpoint.counts
        """Questions by what came of them: `answered`, `empty`, `refused`, `cut`, `unreadable`, `rejected`,
        `out_of_budget`, `unavailable`; and what the endpoint counts: `requests`, `retried`, `status_NNN` and more."""
        self.tokens = 0
        """All that were spent."""
        self.cost = 0.0

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        shown = successes[: self._settings.runs], failures[: self._settings.runs]
        nonce, limit = fresh_mark((*shown[0], *shown[1])), self._settings.limit
        answer = await self._ask(prompt.draw_messages(nonce, *shown, limit))
        if answer is None:
            return ()
        lessons = prompt.read_lessons(answer, nonce, limit)
        self.counts["unreadable" if lessons is None else "answered" if lessons else "empty"] += 1
        return lessons or ()

    async def _ask(self, messages: list[dict[str, str]]) -> str | None:
        """The model's words; None if there are none to be read.

        Raises:
            ModelUnavailable: as `Extractor.draw`.
        """
        self._check_budget()
        reply = await self._endpoint.ask(messages, prompt.LESSONS, anyio.current_time() + self._settings.patience)
        self.tokens += reply.tokens
        self.cost += reply.cost
        self._spent.append((self._clock(), reply.tokens))
        problem = reply.problem or ("truncated" if reply.truncated else "")
        if not problem:
            return reply.content
        self.counts[_READ_AS.get(problem, "unreadable")] += 1
        return None

    def _check_budget(self) -> None:
        now = self._clock()
        while self._spent and now - self._spent[0][0] >= 3600.0:
            self._spent.popleft()
        most = self._settings.tokens_per_hour
        if sum(tokens for _, tokens in self._spent) >= most:
            self.counts["out_of_budget"] += 1
            raise ModelUnavailable(f"{self.name}: {most} tokens of this hour are spent")

"""`LlmExtractor`: lessons and votes from any endpoint that speaks OpenAI's chat completions.

Endpoint, model and key come from options or from the environment (`OPENAI_BASE_URL`, `EVOLVED_EXTRACTOR_MODEL`,
`OPENAI_API_KEY`); the key is never logged. A refusal, an answer that is cut and one that cannot be read yield nothing
and are counted. Attempts are bounded, and so are the tokens of an hour.
"""

import os
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import anyio
import openai

from actors.messages import Trajectory
from adapters.errors import ExtractorUnavailable
from adapters.extractors import Insight, Vote
from adapters.extractors.prompt import draw_messages, read_lessons, read_vote, vote_messages

Outcome = Literal[
    "answered", "empty", "refused", "cut", "unreadable", "rejected", "unavailable", "retried", "out_of_budget"
]
_RETRY_STATUS = (408, 409, 429)


class LlmExtractor:
    """An `Extractor` over a chat endpoint.

    Args:
        model: as the endpoint calls it; `EVOLVED_EXTRACTOR_MODEL` if empty.
        base_url: up to and with `/v1`; `OPENAI_BASE_URL` if empty.
        key_env: variable that holds the key; endpoints without one need none.
        limit: lessons of one call at most.
        runs: trajectories of a side that one call shows.
        max_tokens: of an answer.
        tokens_per_hour: of prompts and answers together, as the endpoint counts them; where it does not, by length.
        attempts: for one question, the first included.
        retry_seconds: before the second attempt; doubled each time, up to 30.
        timeout: seconds for one attempt.
        clock: monotonic seconds, for the budget.
        nonce: makes the mark of one call.

    Raises:
        ValueError: no model is named, neither here nor in the environment.
    """

    def __init__(
        self,
        model: str = "",
        base_url: str = "",
        key_env: str = "OPENAI_API_KEY",
        *,
        limit: int = 3,
        runs: int = 4,
        max_tokens: int = 800,
        tokens_per_hour: int = 200_000,
        attempts: int = 3,
        retry_seconds: float = 1.0,
        timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        nonce: Callable[[], str] = lambda: secrets.token_hex(8),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        known = os.environ if environment is None else environment
        self._model = model or known.get("EVOLVED_EXTRACTOR_MODEL", "")
        if not self._model:
            raise ValueError("the llm extractor needs a model: the option `model`, or EVOLVED_EXTRACTOR_MODEL")
        self.name = f"llm:{self._model}"
        self._limit, self._runs, self._max_tokens = limit, runs, max_tokens
        self._tokens_per_hour, self._attempts, self._retry_seconds = tokens_per_hour, max(1, attempts), retry_seconds
        self._timeout, self._clock, self._nonce = timeout, clock, nonce
        self._spent: deque[tuple[float, int]] = deque()
        self.counts: Counter[Outcome] = Counter()
        """Questions and attempts by what came of them."""
        self.tokens = 0
        """All that were spent."""
        self._base_url = base_url or known.get("OPENAI_BASE_URL", "") or None
        self._key = known.get(key_env, "") or "none"

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        nonce = self._nonce()
        shown = successes[: self._runs], failures[: self._runs]
        answer = await self._ask(draw_messages(nonce, *shown, self._limit))
        if answer is None:
            return ()
        lessons = read_lessons(answer, nonce, self._limit)
        self.counts["unreadable" if lessons is None else "answered" if lessons else "empty"] += 1
        return lessons or ()

    async def vote(self, lesson: Insight, runs: Sequence[Trajectory]) -> Vote:
        nonce = self._nonce()
        answer = await self._ask(vote_messages(nonce, lesson, runs[: self._runs]))
        vote = read_vote(answer, nonce) if answer is not None else None
        if answer is not None:
            self.counts["unreadable" if vote is None else "answered"] += 1
        return vote or "ABSTAIN"

    async def _ask(self, messages: list[dict[str, str]]) -> str | None:
        """The model's words; None if there are none to be read.

        Raises:
            ExtractorUnavailable: as `Extractor.draw`.
        """
        self._check_budget()
        failure = ""
        async with openai.AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            max_retries=0,
            timeout=self._timeout,
        ) as client:
            for attempt in range(self._attempts):
                if attempt:
                    self.counts["retried"] += 1
                    await anyio.sleep(min(30.0, self._retry_seconds * 2 ** (attempt - 1)))
                try:
                    # The client's own limit is for a single read: an endpoint that drips would hold us for ever.
                    with anyio.fail_after(self._timeout):
                        completion = await client.chat.completions.create(
                            model=self._model,
                            messages=cast(Any, messages),
                            max_tokens=self._max_tokens,
                            temperature=0.0,
                        )
                except openai.APIStatusError as error:
                    if error.status_code < 500 and error.status_code not in _RETRY_STATUS:
                        self.counts["rejected"] += 1
                        raise ExtractorUnavailable(f"{self.name}: HTTP {error.status_code}") from error
                    failure = f"HTTP {error.status_code}"
                except (openai.OpenAIError, TimeoutError) as error:
                    failure = type(error).__name__
                except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
                    # The body was no JSON, or none that the client knows what to do with.
                    self._spend(_roughly(messages))
                    self.counts["unreadable"] += 1
                    return None
                else:
                    return self._read(completion, messages)
        self.counts["unavailable"] += 1
        raise ExtractorUnavailable(f"{self.name}: {failure}, {self._attempts} times")

    def _read(self, completion: Any, messages: list[dict[str, str]]) -> str | None:
        usage = getattr(completion, "usage", None)
        told = getattr(usage, "total_tokens", None)
        self._spend(told if isinstance(told, int) and told > 0 else _roughly(messages) + self._max_tokens)
        choices = getattr(completion, "choices", None)
        choice: Any = cast(list[Any], choices)[0] if isinstance(choices, list) and choices else None
        message = getattr(choice, "message", None)
        text, reason = getattr(message, "content", None), getattr(choice, "finish_reason", None)
        if getattr(message, "refusal", None) or reason == "content_filter":
            self.counts["refused"] += 1
        elif reason == "length":
            self.counts["cut"] += 1
        elif not isinstance(text, str) or not text.strip():
            self.counts["unreadable"] += 1
        else:
            return text
        return None

    def _check_budget(self) -> None:
        now = self._clock()
        while self._spent and now - self._spent[0][0] >= 3600.0:
            self._spent.popleft()
        if sum(tokens for _, tokens in self._spent) >= self._tokens_per_hour:
            self.counts["out_of_budget"] += 1
            raise ExtractorUnavailable(f"{self.name}: {self._tokens_per_hour} tokens of this hour are spent")

    def _spend(self, tokens: int) -> None:
        self.tokens += tokens
        self._spent.append((self._clock(), tokens))


def _roughly(messages: list[dict[str, str]]) -> int:
    """Tokens of a prompt whose endpoint does not count them."""
    return sum(len(message["content"]) for message in messages) // 3

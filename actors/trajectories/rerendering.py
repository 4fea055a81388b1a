"""Token ids of a call that something was taken out of: the prompt as the engine renders what is left, the answer as it
was sampled, with the placeholder's ids where it was masked.

    Exchange (no prompt ids, -1 in the answer) -> engine: render, tokenize -> Sampled -> ParsedExchange

A redacted span is a case of a stripped one: ids around it are kept, what nobody sampled is context, and the log-probs
of the answer are recomputed in the context that is left, by the learner. Recorded ones are of the one with the secret.
"""

from collections.abc import Callable, Iterable
from typing import Any

import anyio
import numpy as np

from actors.dialects import parsed
from actors.messages import Exchange, Sampled, VersionSpan, floats_array, ids_array, pack_array, token_versions
from actors.messages.bounded import Bounded
from actors.ports.engines import Engine
from actors.ports.errors import EngineRejected, EngineUnavailable

_MASKED = -1
_AT_ONCE = 4
_SECONDS = 20.0
"""For all redacted calls of a batch: the engine answers agents first, and the assembler must go on."""
_STAND_INS = 4096
"""Remembered; a placeholder without a key is one of few."""
_PLAIN = frozenset({"text", "input_text"})
_OTHERWISE = frozenset(
    {
        "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents",
        "reasoning_effort", "add_special_tokens", "mm_processor_kwargs", "functions", "truncate_prompt_tokens",
    }
)  # fmt: skip
"""Fields of a request that change how its prompt is rendered, beside messages and tools."""


class Rerenderer:
    """Asks the engine, within bounds, and remembers what stands in."""

    def __init__(self, engine: Engine | None) -> None:
        """
        Args:
            engine: None: redacted calls have no tokens.
        """
        self._engine = engine
        self._stand_ins: Bounded[str, list[int]] = Bounded(_STAND_INS)
        self.failed = 0
        """Calls that no engine rendered in time: they are kept without tokens."""

    async def __call__(self, exchanges: Iterable[Exchange], version: Callable[[Exchange], int]) -> dict[str, Sampled]:
        """By id, those of `exchanges` that something was taken out of and that can be rendered; `version` says which
        weights sampled one whose engine does not say, -1 if unknown."""
        engine = self._engine
        found: dict[str, Sampled] = {}
        if engine is None:
            return found
        wanted = [exchange for exchange in exchanges if _can(exchange)]
        limit = anyio.CapacityLimiter(_AT_ONCE)
        away = False

        async def one(exchange: Exchange) -> None:
            nonlocal away
            async with limit:
                if away:
                    return
                try:
                    found[exchange.id] = await self._one(exchange, version(exchange), engine)
                except EngineUnavailable:
                    away = True
                except (EngineRejected, ValueError):
                    return

        with anyio.move_on_after(_SECONDS):
            async with anyio.create_task_group() as group:
                for exchange in wanted:
                    group.start_soon(one, exchange)
        self.failed += len(wanted) - len(found)
        return found

    async def _one(self, exchange: Exchange, version: int, engine: Engine) -> Sampled:
        prompt = exchange.prompt_ids
        if not prompt:
            asked = parsed(exchange.request)
            prompt = pack_array(await engine.render(asked["messages"], asked.get("tools") or None), "<i4")
        ids, logprobs = ids_array(exchange.response_ids), floats_array(exchange.logprobs)
        versions = token_versions(exchange.versions or (VersionSpan(version, 0, len(ids)),), len(ids))
        gone = ids == _MASKED
        starts = np.flatnonzero(gone & ~np.concatenate([[False], gone[:-1]]))
        if len(starts) != len(exchange.masked):
            raise ValueError(f"{len(starts)} masked runs, {len(exchange.masked)} texts for them")
        put = [await self._stand_in(text, engine) for text in exchange.masked]
        before = np.repeat(starts, np.array([len(one) for one in put], dtype=int))
        kept = ~np.insert(gone, before, False)

        def mended(column: Any, stand_ins: Any) -> Any:
            return np.insert(column, before, stand_ins)[kept]

        return Sampled(
            prompt_ids=prompt, response_ids=pack_array(mended(ids, [one for each in put for one in each]), "<i4"),
            logprobs=pack_array(mended(logprobs, 0.0), "<f4"), versions=pack_array(mended(versions, -1), "<i4"),
            redacted=True, stand_in=pack_array(mended(np.zeros(len(ids)), 1), "u1"), masked=int(gone.sum()),
        )  # fmt: skip

    async def _stand_in(self, text: str, engine: Engine) -> list[int]:
        if text not in self._stand_ins:
            self._stand_ins[text] = await engine.tokenize(text) if text else []
        return self._stand_ins[text]


def _can(exchange: Exchange) -> bool:
    """Whether its prompt is messages and tools and nothing else, and its answer has tokens."""
    if not exchange.redacted or not 0 < len(exchange.response_ids) == len(exchange.logprobs):
        return False
    if exchange.prompt_ids:
        return True
    asked = parsed(exchange.request)
    if not isinstance(asked, dict) or not isinstance(messages := asked.get("messages"), list):
        return False
    if any(asked.get(name) is not None for name in _OTHERWISE) or asked.get("tool_choice") == "none":
        return False
    return all(isinstance(message, dict) and _is_text(message.get("content")) for message in messages)


def _is_text(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) and part.get("type") in _PLAIN for part in content)
    return content is None or isinstance(content, str)

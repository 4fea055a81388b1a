"""Token ids of a call that something was taken out of: the prompt as the engine renders what is left, the answer as it
was sampled, with the placeholder's ids where it was masked.

    Exchange (no prompt ids, -1 in the answer) -> engine: render, tokenize -> Sampled -> ParsedExchange

A redacted span is a case of a stripped one: ids around it are kept, what nobody sampled is context, and the log-probs
of the answer are recomputed in the context that is left, by the learner. Recorded ones are of the one with the secret.
"""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import numpy as np

from actors.messages import Exchange, floats_array, ids_array, pack_array, token_versions
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


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a call; `response_ids`, `logprobs` and `versions` are of one length."""

    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: bytes = b""
    """int32, -1 where nobody says."""
    redacted: bool = False
    """They are those of a context that something was taken out of."""
    stand_in: bytes = b""
    """uint8, 1 on ids of placeholders; empty without."""
    masked: int = 0
    """Sampled tokens that are gone."""


class Rerenderer:
    """Asks the engine, within bounds, and remembers what stands in."""

    def __init__(self, engine: Engine | None) -> None:
        """
        Args:
            engine: None: redacted calls have no tokens.
        """
        self._engine = engine
        self._stand_ins: dict[str, list[int]] = {}
        self.failed = 0
        """Calls that no engine rendered in time: they are kept without tokens."""

    async def __call__(self, exchanges: list[Exchange], version: Callable[[Exchange], int]) -> dict[str, Sampled]:
        """By id, those of `exchanges` that something was taken out of and that can be rendered; `version` says which
        weights sampled one whose engine does not say, -1 if unknown."""
        wanted = [exchange for exchange in exchanges if self._engine is not None and _can(exchange)]
        found: dict[str, Sampled] = {}
        if not wanted:
            return found
        limit = anyio.CapacityLimiter(_AT_ONCE)
        away = False

        async def one(exchange: Exchange) -> None:
            nonlocal away
            async with limit:
                if away:
                    return
                try:
                    found[exchange.id] = await self._one(exchange, version(exchange))
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

    async def _one(self, exchange: Exchange, version: int) -> Sampled:
        engine = self._engine
        assert engine is not None
        prompt = exchange.prompt_ids
        if not prompt:
            asked = msgspec.json.decode(exchange.request)
            prompt = pack_array(await engine.render(asked["messages"], asked.get("tools") or None), "<i4")
        ids, logprobs = ids_array(exchange.response_ids), floats_array(exchange.logprobs)
        versions = token_versions(exchange.versions, len(ids)) if exchange.versions else np.full(len(ids), version)
        gone = ids == _MASKED
        starts = np.flatnonzero(gone & ~np.concatenate([[False], gone[:-1]]))
        if len(starts) != len(exchange.masked):
            raise ValueError(f"{len(starts)} masked runs, {len(exchange.masked)} texts for them")
        put = [await self._stand_in(text) for text in exchange.masked]
        before = np.repeat(starts, np.array([len(one) for one in put], dtype=int))
        kept = ~np.insert(gone, before, False)

        def mended(column: Any, stand_ins: Any) -> Any:
            return np.insert(column, before, stand_ins)[kept]

        return Sampled(
            prompt_ids=prompt, response_ids=pack_array(mended(ids, [one for each in put for one in each]), "<i4"),
            logprobs=pack_array(mended(logprobs, 0.0), "<f4"), versions=pack_array(mended(versions, -1), "<i4"),
            redacted=True, stand_in=pack_array(mended(np.zeros(len(ids)), 1), "u1"), masked=int(gone.sum()),
        )  # fmt: skip

    async def _stand_in(self, text: str) -> list[int]:
        ids = self._stand_ins.get(text)
        if ids is None:
            assert self._engine is not None
            ids = await self._engine.tokenize(text) if text else []
            if len(self._stand_ins) >= _STAND_INS:
                self._stand_ins.clear()
            self._stand_ins[text] = ids
        return ids


def _can(exchange: Exchange) -> bool:
    """Whether its prompt is messages and tools and nothing else, and its answer has tokens."""
    if not exchange.redacted or not exchange.response_ids:
        return False
    if len(exchange.logprobs) != len(exchange.response_ids):
        return False
    if exchange.prompt_ids:
        return True
    try:
        asked = msgspec.json.decode(exchange.request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        return False
    if any(asked.get(name) is not None for name in _OTHERWISE) or asked.get("tool_choice") == "none":
        return False
    return all(isinstance(message, dict) and _is_text(message.get("content")) for message in asked["messages"])


def _is_text(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) and part.get("type") in _PLAIN for part in content)
    return content is None or isinstance(content, str)

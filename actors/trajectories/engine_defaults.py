"""What an engine does to sampling that a request does not speak of: its defaults, asked of the engine itself.

    Exchange (fields that the request left unsaid) + the engine's defaults -> the sampling that took place

vLLM takes them from the checkpoint's generation_config.json unless it runs with `--generation-config vllm`: of Qwen's
models temperature 0.7, top_p 0.8, top_k 20, repetition penalty 1.05. A call that is believed to have been sampled
otherwise than it was teaches something else than what happened.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import msgspec
import structlog

from actors.messages import Exchange, Sampling
from actors.ports.errors import EngineError

Ask = Callable[[], Awaitable[Sampling]]
_log = structlog.get_logger(__name__)
UNKNOWN = Sampling(bent_by="unknown sampling defaults")
_FRESH_SECONDS = 60.0
"""An engine that comes up again with other defaults is believed to have the old ones for so long at most."""
_RETRY_SECONDS = 10.0
_SECONDS = 5.0
"""For an answer: the calls that wait for it are done, but others wait for them."""


class EngineDefaults:
    """What is known of each engine."""

    def __init__(self, engines: Mapping[str, Ask], ticks: Callable[[], float]) -> None:
        """
        Args:
            engines: ask each, by the name that exchanges have for it; may raise EngineError. Of others nothing is
                asked: their calls are taken as they stand.
            ticks: seconds.
        """
        self._engines, self._ticks = engines, ticks
        self._known: dict[str, Sampling] = {}
        self._next: dict[str, float] = {}
        self._silent: set[str] = set()

    async def look(self, exchanges: Iterable[Exchange]) -> None:
        """Ask the engines whose answer to one of `exchanges` may train and depends on their defaults."""
        concerned = {one.engine for one in exchanges if one.response_ids and one.sampling.unsaid}
        for name in sorted(concerned & self._engines.keys()):
            if self._ticks() < self._next.get(name, 0.0):
                continue
            try:
                with anyio.fail_after(_SECONDS):
                    self._known[name] = await self._engines[name]()
            except (EngineError, TimeoutError) as error:
                if name not in self._silent:
                    reason = f"{type(error).__name__}: {error}"
                    _log.warning("engine_sampling_defaults_unknown", engine=name, reason=reason)
                self._silent.add(name)
            else:
                self._silent.discard(name)
            self._next[name] = self._ticks() + (_RETRY_SECONDS if name in self._silent else _FRESH_SECONDS)

    def applied(self, exchange: Exchange) -> Exchange:
        """`exchange` with the sampling that took place."""
        said = exchange.sampling
        if exchange.engine not in self._engines or not said.unsaid:
            return exchange
        default = self._known.get(exchange.engine, UNKNOWN)
        filled = {name: getattr(default, name) for name in said.unsaid}
        sampling = msgspec.structs.replace(said, unsaid=(), bent_by=said.bent_by or default.bent_by, **filled)
        return msgspec.structs.replace(exchange, sampling=sampling)

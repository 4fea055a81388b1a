"""Engines: servers that hold the weights, behind one Protocol.

Weight versions are numbers here and decimal strings on an engine. A swap is `prepare`, `pause`, `load`, `label`,
`resume`, and only `adapters.engines.swap` runs it, where a dead daemon cannot leave it half done.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import VersionSpan


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine sampled for one prompt."""

    token_ids: list[int]
    """Sampled ids, the end token included if it was sampled."""
    logprobs: list[float]
    """Natural log-probs of `token_ids` at temperature 1, unmasked, one each."""
    versions: tuple[VersionSpan, ...]
    """Spans over `token_ids` by the weights that sampled them, in order, without gaps; empty if it cannot say."""
    finish_reason: str
    """`stop`, `length`, `tool_calls`, `abort` or `error`; an engine of another make may say more."""


class Engine(Protocol):
    """One engine. Every call has a deadline of its own.

    Raises, in every method:
        EngineUnavailable: no connection, or no answer in time; trying again later makes sense.
        EngineRejected: the engine answered with an error, whose status and text it carries.
    """

    name: str

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """One chat completion that is not streamed: request and response in OpenAI's form with vLLM's additions."""
        ...

    async def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None
    ) -> list[int]:
        """Token ids of the prompt that `chat` would make of `messages` and `tools`."""
        ...

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float = 1.0, seed: int | None = None,
        ignore_eos: bool = False,
    ) -> Generation:  # fmt: skip
        """Sample a continuation of `prompt_ids`; temperature 0 is greedy."""
        ...

    async def log_probs(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Log-prob of each of the `n` ids given those before it, `(n,)` float32 in nats; the first is NaN."""
        ...

    async def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens added."""
        ...

    async def version(self) -> int:
        """Weight version that is served, -1 if its label is not a number."""
        ...

    async def health(self) -> bool:
        """Whether the engine answers and says it is well; never raises EngineUnavailable or EngineRejected."""
        ...

    async def pause(self) -> None:
        """Stop between two tokens; running requests are kept, new ones wait. The KV cache is dropped."""
        ...

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        """Read and check the version directory `path` while the engine serves, so that `load` is quick and cannot fail.
        CheckpointRefused: it must not be loaded; nothing was touched.

        Args:
            like: directory that the version must be like; an engine that knows what it serves compares with that.
            manifest: sha256 that manifest.json must have: what was verified before is what is loaded. Empty for any.
            epoch: of the lease under which the swap is done.
        """
        ...

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        """Load the version directory `path`, which must be readable by the engine. CheckpointRefused: the engine looked
        at it and will not have it; what it served is still there.

        Args:
            epoch: of the lease under which the swap is done; one smaller than the greatest seen is refused.
            clean: also overwrite the KV blocks, where the engine can: what served may have left NaN in them.
        """
        ...

    async def label(self, version: int) -> None:
        """Say which version is served from now on."""
        ...

    async def resume(self) -> None:
        """Go on; does nothing if the engine is not paused."""
        ...

    async def is_paused(self) -> bool:
        """Whether the engine is paused."""
        ...

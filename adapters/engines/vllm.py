"""vLLM as it is in the field: what it can do is found out by asking, and weights go in through the best way there is.

With the plug-in `evolved-vllm` in its environment (see adapters/engines/vllm_plugin), every worker reads and checks a
version while the old one serves, and loads it with its own last good directory at hand. Without it the version is
checked from here, and vLLM's `reload_weights` loads it; a head tied to the embeddings is then refused on a CPU, where
that reload gets it wrong without a word. The embedded engine is such an engine without the plug-in. Version strings are
never looked at: builds and forks say what they like.
"""

import time
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import structlog

from actors.ports.errors import CheckpointRefused, EngineRejected, EngineUnavailable
from adapters.engines.client import EngineClient

_log = structlog.get_logger(__name__)
_METRIC = "evolved_plugin"
"""By which the plug-in announces itself; see evolved_vllm/__init__.py."""
_FIRST_LOOK, _LAST_LOOK = 0.02, 1.0
"""Seconds between two questions how the reading of a version goes."""


class _Answer(msgspec.Struct, frozen=True):
    """What one worker answers; see evolved_vllm/loader.py."""

    state: Literal["checking", "ready", "refused", "loaded", "rolled_back", "failed"]
    reason: str = ""
    digest: str = ""
    warning: str = ""
    """What nobody has tried yet; from `evolved_info`."""


class VllmEngine(EngineClient):
    """A vLLM at a URL, of a kind that is found out when it matters. An `Engine`."""

    _plugin: bool | None = None
    """Whether it has the plug-in, once it was asked."""

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        await self.render([{"role": "user", "content": "Are you there?"}])  # the spot check needs the token endpoints
        self._plugin = None  # it may have been started anew, otherwise, since the last swap
        if await self._has_plugin():
            await self._prepare_there(path, manifest, epoch)
            return
        await self._validate(path, like, manifest, tied=await self._loads_tied(path))

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        if not await self._has_plugin():
            await super().load(path, epoch=epoch, clean=clean)
            return
        answers = await self._rpc("evolved_load", {"path": str(path), "epoch": epoch, "clean": clean})
        self._took(answers)

    async def _has_plugin(self) -> bool:
        """
        Raises:
            EngineRejected: its development endpoints are closed; the message names the variable that opens them.
        """
        if self._plugin is None:
            await self.version()  # for the error, if the development endpoints are closed
            # Not by calling a method that may not be there: vLLM would log a traceback and close the connection.
            self._plugin = any(line.startswith(f"{_METRIC}{{") for line in (await self.metrics()).splitlines())
            warnings = [answer.warning for answer in await self._rpc("evolved_info", {})] if self._plugin else []
            if warnings and warnings[0]:
                _log.warning("engine_untried", engine=self.name, text=warnings[0])
        return self._plugin

    async def _loads_tied(self, path: Path) -> bool:
        """Whether stock `reload_weights` is right for a head that is tied: everywhere but on a CPU."""
        try:
            config = msgspec.json.decode((path / "config.json").read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.DecodeError):
            return False  # validation says what is wrong
        if not config.get("tie_word_embeddings", False):
            return True
        try:
            # vLLM collects what it knows of its machine: seconds, and on some machines an error.
            info = await self._json("GET", "/server_info", seconds=self._deadlines.sample)
        except EngineRejected:
            return False
        return "device_config=cuda" in str(info.get("vllm_config"))

    async def _prepare_there(self, path: Path, manifest: str, epoch: int) -> None:
        """Have every worker read the directory; wait until all are done. Raises CheckpointRefused: one of them will
        not have it; EngineUnavailable: not done within the deadline for loading."""
        answers = await self._rpc("evolved_prepare", {"path": str(path), "manifest": manifest, "epoch": epoch})
        end, pause = time.monotonic() + self._deadlines.load, _FIRST_LOOK
        while True:
            refused = next((answer.reason for answer in answers if answer.state == "refused"), None)
            if refused is not None:
                raise CheckpointRefused(refused)
            if all(answer.state == "ready" for answer in answers):
                break
            if time.monotonic() > end:
                raise EngineUnavailable(f"{self.name} still reads {path} after {self._deadlines.load:g} s")
            await anyio.sleep(pause)  # over HTTP there is no event to wait for
            pause = min(1.5 * pause, _LAST_LOOK)
            answers = await self._rpc("evolved_prepared", {"path": str(path)})
        if len({answer.digest for answer in answers}) != 1:
            raise CheckpointRefused(f"{path} is not the same files for every worker; share one copy among their nodes")

    def _took(self, answers: list[_Answer]) -> None:
        """Read the answers to a load. Raises CheckpointRefused: all have what they had; EngineRejected: some have,
        some have not, or one has nothing: load the last good version again."""
        states = {answer.state for answer in answers}
        reason = next((answer.reason for answer in answers if answer.reason), "")
        if states <= {"refused", "rolled_back"}:
            raise CheckpointRefused(reason)
        if states != {"loaded"}:
            raise EngineRejected(f"{self.name}: the workers do not agree ({', '.join(sorted(states))}): {reason}")
        if len({answer.digest for answer in answers}) != 1:
            raise EngineRejected(f"{self.name}: the workers loaded different files; share one copy among their nodes")

    async def _rpc(self, method: str, kwargs: dict[str, Any]) -> list[_Answer]:
        body = {"method": method, "kwargs": kwargs}
        answer = await self._json("POST", "/collective_rpc", body, seconds=self._deadlines.load)
        try:
            answers = msgspec.convert(answer.get("results"), list[_Answer])
        except msgspec.ValidationError as error:
            raise EngineRejected(f"{self.name}: {method} gave an answer that cannot be read: {error}") from error
        if not answers:
            raise EngineRejected(f"{self.name}: no worker answered {method}")
        return answers

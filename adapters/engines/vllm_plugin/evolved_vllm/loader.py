"""What one worker knows about its weights: which directory serves, and the greatest epoch seen.

Every answer is a dict with a `state`; nothing here raises, since an exception from a worker can cost the whole server:

    checking     a directory is being read, ask again
    ready        it was found good and can be loaded
    refused      it will not be loaded; what served is untouched
    loaded       it serves
    rolled_back  loading it failed, the directory that served before was loaded again
    failed       neither could be loaded; the model is not to be used
"""

import logging
import time
from pathlib import Path
from typing import Any

from .checkpoint import Check, Checkpoint, Refused, Served, describe, identify, open_checkpoint
from .model import Model

Answer = dict[str, Any]
SHOWN = {"Qwen2ForCausalLM": "tests/vllm: float32, on a CPU, vLLM 0.32, heads tied and not"}
"""Architectures whose hot swap was tried with a real vLLM, and where. Others load through the same code; whether their
loader gets every tensor right nobody has looked at."""
_READ_ON = 30.0
"""Seconds that a load waits for a check that is not over: agents wait behind it, and a thread that hangs on a dead
disk never ends. Who asked for `prepared` first never waits."""
_REMEMBERED = 8
"""Directories that were loaded and need not be read through again to go back to them."""


class Loader:
    """The weights of one worker."""

    def __init__(self, worker: Any) -> None:
        self._worker, self._model = worker, Model(worker)
        self._served: Served | None = None
        self._check: Check | None = None
        self._epoch = 0
        self._path, self._digest = "", ""
        self._good: dict[str, tuple[Any, str]] = {}
        """Identity and digest of directories that were loaded."""

    def info(self) -> Answer:
        """What it knows, and whether what serves was ever tried."""
        try:
            return {**self._answer("loaded"), "warning": untried(self._layout().config)}
        except Refused as error:
            return self._answer("refused", str(error))

    def prepare(self, path: str, epoch: int, manifest: str = "") -> Answer:
        """Begin to read a directory while the old one serves; `prepared` says how it went.

        Args:
            manifest: sha256 that its manifest.json must have; empty for any.
        """
        refused = self._stale(epoch)
        if refused:
            return refused
        check = self._check
        # Whoever gave up waiting and asks again finds it further on: gigabytes are not read from the start again.
        if (
            check is not None
            and (check.path, check.manifest) == (path, manifest)
            and (not check.over or (check.checkpoint and identify(Path(path)) == check.checkpoint.identity))
        ):
            return self.prepared(path)
        self._forget_check()
        try:
            self._check = Check(path, self._layout(), manifest)
        except Refused as error:
            return self._answer("refused", str(error))
        self._check.start()
        return self._answer("checking")

    def prepared(self, path: str) -> Answer:
        """How the reading of `path` goes."""
        check = self._check
        if check is None or check.path != path:
            return self._answer("refused", f"{path} is not being read; ask for it with evolved_prepare")
        if not check.over:
            return self._answer("checking")
        if check.checkpoint is None:
            return self._answer("refused", check.reason)
        return {**self._answer("ready"), "seconds": check.seconds, "digest": check.digest}

    def load(self, path: str, epoch: int, clean: bool) -> Answer:
        """Load a directory; one that was not prepared, or has changed since, is read first."""
        refused = self._stale(epoch)
        if refused:
            return refused
        try:
            checkpoint, digest = self._checked(path)
        except Refused as error:
            return self._answer("refused", str(error))
        finally:
            self._forget_check()
        self._epoch = max(self._epoch, epoch)
        began = time.monotonic()
        previous = self._serving()
        try:
            self._model.feed(checkpoint)
            if clean:
                self._model.clean_cache()
        except Exception as error:
            return self._back(previous, f"{path} could not be loaded: {type(error).__name__}: {error}")
        self._remember(checkpoint, digest)
        return {**self._answer("loaded"), "seconds": time.monotonic() - began}

    def _layout(self) -> Served:
        """What serves, from the files that vLLM started with; read once, before anything can have changed them much.
        Raises Refused: they are not there."""
        if self._served is None:
            config = self._worker.vllm_config.model_config
            path = _local(str(config.model), config.revision)
            self._served = describe(open_checkpoint(path))
            self._path = path
            if warning := untried(self._served.config):
                logging.getLogger(__name__).warning(warning)
        return self._served

    def _serving(self) -> str:
        """The directory that serves, even if vLLM's own reload brought it."""
        model = str(self._worker.vllm_config.model_config.model)
        return model if Path(model).is_dir() else self._path

    def _checked(self, path: str) -> tuple[Checkpoint, str]:
        layout = self._layout()
        check = self._check
        if check is not None and check.path == path:
            check.join(_READ_ON)
            if not check.over:
                check.stop()
                raise Refused(f"{path} is still being read {_READ_ON:g} s later; is its disk hung? Ask again later")
            if check.checkpoint is None:
                raise Refused(check.reason)
            if identify(Path(path)) == check.checkpoint.identity:
                return check.checkpoint, check.digest
        known = self._good.get(path)
        if known is not None and known[0] == identify(Path(path)):
            return open_checkpoint(path), known[1]
        check = Check(path, layout)
        check.look()
        if check.checkpoint is None:
            raise Refused(check.reason)
        return check.checkpoint, check.digest

    def _back(self, previous: str, reason: str) -> Answer:
        try:
            self._model.mend()
            self._model.feed(open_checkpoint(previous))
            self._model.clean_cache()
        except Exception as error:
            return self._answer("failed", f"{reason}; and {previous}: {type(error).__name__}: {error}")
        return self._answer("rolled_back", reason)

    def _remember(self, checkpoint: Checkpoint, digest: str) -> None:
        self._path, self._digest = checkpoint.path, digest
        self._good.pop(checkpoint.path, None)
        self._good[checkpoint.path] = (checkpoint.identity, digest)
        while len(self._good) > _REMEMBERED:
            del self._good[next(iter(self._good))]

    def _stale(self, epoch: int) -> Answer | None:
        if epoch >= self._epoch:
            return None
        return self._answer(
            "refused", f"lease epoch {epoch} is smaller than {self._epoch}: somebody else holds the lease by now"
        )

    def _forget_check(self) -> None:
        if self._check is not None:
            self._check.stop()
        self._check = None

    def _answer(self, state: str, reason: str = "") -> Answer:
        return {"state": state, "reason": reason, "path": self._path, "digest": self._digest, "epoch": self._epoch}


def untried(config: dict[str, Any]) -> str:
    """A warning that names the architectures in a config.json whose swap was never tried; empty if all were."""
    found = config.get("architectures")
    names = [str(name) for name in found] if isinstance(found, list) and found else ["an architecture without a name"]
    new = [name for name in names if name not in SHOWN]
    if not new:
        return ""
    return (
        f"hot swaps of {', '.join(new)} were never tried (they were of {', '.join(SHOWN)}): compare the first swapped "
        "version with a vLLM that was started with it"
    )


def _local(model: str, revision: str | None) -> str:
    """The directory that vLLM read a model from: itself, or its place in the hub's cache."""
    if Path(model).is_dir():
        return model
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]

        return str(snapshot_download(model, revision=revision, local_files_only=True))
    except Exception as error:
        raise Refused(f"the files of {model}, which is served, are not on this machine: {error}") from error

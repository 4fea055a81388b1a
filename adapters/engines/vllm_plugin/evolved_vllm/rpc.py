"""The methods that every worker has with this plug-in, for `POST /collective_rpc` (`VLLM_SERVER_DEV_MODE=1`).

    {"method": "evolved_prepare", "kwargs": {"path": "/versions/v000007", "epoch": 3}}     while the old one serves
    {"method": "evolved_prepared", "kwargs": {"path": "/versions/v000007"}}                until it is ready or refused
    {"method": "evolved_load", "kwargs": {"path": "/versions/v000007", "epoch": 3}}        between /pause and /resume

vLLM answers `{"results": [...]}` with one answer a worker; `evolved_vllm.loader` lists the states. A load belongs
between `/pause?mode=keep&clear_cache=true` and `/resume`: the workers cannot see whether the engine is paused.
"""

from collections.abc import Callable
from typing import Any

from .loader import Answer, Loader


def evolved_info(worker: Any) -> Answer:
    """What the plug-in knows: epoch, path and digest of what serves, and a warning."""
    return _loader(worker).info()


def evolved_prepare(worker: Any, path: str, epoch: int = 0, manifest: str = "") -> Answer:
    """Read and check a version directory, as every worker sees it, without touching the model. Its manifest.json must
    have the sha256 `manifest`, if that is not empty."""
    return _loader(worker).prepare(str(path), int(epoch), str(manifest))


def evolved_prepared(worker: Any, path: str) -> Answer:
    """How that goes: checking, ready or refused."""
    return _loader(worker).prepared(str(path))


def evolved_load(worker: Any, path: str, epoch: int = 0, clean: bool = False) -> Answer:
    """Load a version directory. Refused if its check fails, or if `epoch` is smaller than the greatest one seen since
    the worker started. `clean` zeroes the KV blocks as well: after weights that may have left NaN in them."""
    return _loader(worker).load(str(path), int(epoch), bool(clean))


METHODS: dict[str, Callable[..., Answer]] = {
    method.__name__: method
    for method in (
        evolved_info, evolved_prepare, evolved_prepared, evolved_load,
    )
}  # fmt: skip


def _loader(worker: Any) -> Loader:
    if not hasattr(worker, "_evolved"):
        worker._evolved = Loader(worker)
    return worker._evolved

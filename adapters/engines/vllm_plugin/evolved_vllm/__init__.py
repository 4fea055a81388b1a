"""A vLLM plug-in: checked hot swaps, the last good checkpoint kept, and a digest of what is loaded.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`). It hangs the methods of
`evolved_vllm.rpc` on vLLM's worker class, where `/collective_rpc` finds them, so that no flag is needed. Imports nothing
but vLLM's own dependencies and can be installed by itself.
"""

__version__ = "0.1.0"


def register() -> None:
    """Give the workers of this process the methods of `evolved_vllm.rpc`; doing it twice does no harm."""
    from vllm.v1.worker.worker_base import WorkerBase  # pyright: ignore[reportMissingImports]

    from .rpc import METHODS

    for name, method in METHODS.items():
        setattr(WorkerBase, name, method)

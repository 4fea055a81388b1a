"""A vLLM plug-in: checked hot swaps, the last good checkpoint kept, and a digest of what is loaded.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`). It hangs the methods of
`evolved_vllm.rpc` on vLLM's worker class, where `/collective_rpc` finds them, so that no flag is needed. Imports
nothing but vLLM's own dependencies and can be installed by itself.

Whoever wants to know whether the plug-in is there reads `/metrics`: to call a method that a worker does not have would
leave a traceback in the server's log, and costs the caller its connection.
"""

__version__ = "0.1.0"
METRIC = "evolved_plugin"
"""Shown on /metrics, with the version as its label. vLLM clears away other people's metrics that have its own name."""


def register() -> None:
    """Give the workers of this process the methods of `evolved_vllm.rpc`; doing it twice does no harm."""
    from vllm.v1.worker.worker_base import WorkerBase  # pyright: ignore[reportMissingImports]

    from .rpc import METHODS

    for name, method in METHODS.items():
        setattr(WorkerBase, name, method)
    _announce()


def _announce() -> None:
    from prometheus_client import REGISTRY, Gauge

    if METRIC not in REGISTRY._names_to_collectors:
        gauge = Gauge(METRIC, "Plug-in evolved-vllm.", ["version"], multiprocess_mode="max")
        gauge.labels(__version__).set(1)

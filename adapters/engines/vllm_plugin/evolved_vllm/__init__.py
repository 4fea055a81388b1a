"""A vLLM plug-in: checked hot swaps, the last good checkpoint kept, a digest of what is loaded, log-probs of
`/v1/responses`, and token ids and log-probs of `/v1/messages`.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`). It hangs the methods of
`evolved_vllm.rpc` on vLLM's worker class, where `/collective_rpc` finds them, so that no flag is needed; in processes
that answer requests it has `evolved_vllm.responses` and `evolved_vllm.messages` lay beside an answer what it was
sampled as. Imports nothing but vLLM's own dependencies and can be installed by itself.

Whoever wants to know whether the plug-in is there reads `/metrics`: to call a method that a worker does not have would
leave a traceback in the server's log, and costs the caller its connection.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time

__version__ = "0.1.0"
LAUNCHER = "EVOLVED_LAUNCHER"
"""Variable with the process id of the `evolved engine` that started the server."""
_GRACE = 30.0
"""Seconds that the server has to end after its launcher, as when the launcher stops it."""
METRIC = "evolved_plugin"
"""Shown on /metrics, with the version as its label. vLLM clears away other people's metrics that have its own name."""


def register() -> None:
    """Give the workers of this process the methods of `evolved_vllm.rpc`; doing it twice does no harm."""
    from vllm.v1.worker.worker_base import WorkerBase  # pyright: ignore[reportMissingImports]

    from .rpc import METHODS

    for name, method in METHODS.items():
        setattr(WorkerBase, name, method)
    _announce()
    if _answers_requests():
        _give_logprobs()
        _give_tokens()
    launcher = int(os.environ.get(LAUNCHER) or 0)
    if launcher and os.getppid() == launcher:
        threading.Thread(target=_outlive, args=(launcher,), name="evolved-launcher", daemon=True).start()


def _answers_requests() -> bool:
    """Whether this is a server's first process, or one of several API servers: engine core and workers have other
    names, and would import the whole of vLLM's HTTP side for nothing."""
    name = multiprocessing.current_process().name
    return name == "MainProcess" or name.startswith("ApiServer")


def _give_logprobs() -> None:
    try:
        from vllm.entrypoints.openai.responses.context import (  # pyright: ignore[reportMissingImports]
            SimpleContext,
        )
        from vllm.entrypoints.openai.responses.protocol import (  # pyright: ignore[reportMissingImports]
            ResponsesRequest,
            ResponsesResponse,
        )

        from .responses import give_logprobs

        give_logprobs(ResponsesRequest, ResponsesResponse, SimpleContext)
    except (ImportError, AttributeError) as error:
        # Swaps do not depend on it, and the records of such calls say that log-probs are missing.
        logging.getLogger(__name__).warning("no log-probs from /v1/responses in this vLLM: %s", error)


def _give_tokens() -> None:
    try:
        from vllm.entrypoints.anthropic.protocol import (  # pyright: ignore[reportMissingImports]
            AnthropicMessagesResponse,
        )
        from vllm.entrypoints.anthropic.serving import (  # pyright: ignore[reportMissingImports]
            AnthropicServingMessages,
        )
        from vllm.entrypoints.openai.chat_completion.protocol import (  # pyright: ignore[reportMissingImports]
            ChatCompletionRequest,
        )

        from .messages import give_tokens

        give_tokens(AnthropicServingMessages, ChatCompletionRequest, AnthropicMessagesResponse)
    except (ImportError, AttributeError) as error:
        # As above.
        logging.getLogger(__name__).warning("no token ids from /v1/messages in this vLLM: %s", error)


def _outlive(launcher: int) -> None:
    """End this server, its engine core and workers a while after a launcher that was killed.

    The kernel asks the server to stop then (prctl(2), PR_SET_PDEATHSIG); but it waits for its open requests, and an
    engine that hangs never answers them.
    """
    while os.getppid() == launcher:
        time.sleep(1.0)
    time.sleep(_GRACE)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _announce() -> None:
    from prometheus_client import REGISTRY, Gauge

    if METRIC not in REGISTRY._names_to_collectors:
        gauge = Gauge(METRIC, "Plug-in evolved-vllm.", ["version"], multiprocess_mode="max")
        gauge.labels(__version__).set(1)

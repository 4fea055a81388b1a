"""`evolved engine`: serves a small model over HTTP until it is told to stop."""

import argparse
import os
import random
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import torch
import uvicorn

from actors.ports.errors import CheckpointRefused
from adapters.engines.embedded.server import application
from adapters.engines.embedded.service import EngineService

_log = structlog.get_logger(__name__)


def parser() -> argparse.ArgumentParser:
    """The arguments; names as vLLM's where vLLM has them."""
    top = argparse.ArgumentParser(
        prog="evolved engine",
        description="Serve a small Qwen2 checkpoint with the part of vLLM's HTTP surface that evolved uses.",
        epilog="A real vLLM is started with: evolved engine --vllm MODEL (see evolved engine --vllm MODEL --help)",
    )
    top.add_argument("--model", type=Path, required=True, metavar="DIR", help="HF checkpoint (safetensors)")
    top.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    top.add_argument("--port", type=int, default=8000)
    top.add_argument(
        "--served-model-name", metavar="NAME", help="how requests address the model (the directory's name)"
    )
    top.add_argument("--weight-version", default="0", metavar="LABEL", help="label of the weights (0)")
    top.add_argument("--threads", type=int, default=1, help="threads that compute (1)")
    top.add_argument("--max-num-seqs", type=int, default=64, help="answers made at the same time (64)")
    top.add_argument("--max-waiting", type=int, default=4096, help="answers under way or waiting; more get 503 (4096)")
    top.add_argument("--max-model-len", type=int, help="tokens of prompt and answer (the checkpoint's maximum)")
    top.add_argument("--seed", type=int, help="of requests that bring none (random)")
    top.add_argument(
        "--dev-mode",
        action="store_true",
        default=os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
        help="endpoints that pause and load weights; they know no authentication (also VLLM_SERVER_DEV_MODE=1)",
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Serve; returns the exit status (2: the checkpoint cannot be served).

    An address that cannot be had ends the process with 1, from within uvicorn.
    """
    arguments = parser().parse_args(argv)
    try:
        with socket.create_server((arguments.host, arguments.port)):
            pass
    except OSError as error:
        print(
            f"evolved engine: --port {arguments.port} on {arguments.host}: {error.strerror}; `ss -ltnp` shows who "
            "listens there, --port takes another",
            file=sys.stderr,
        )
        return 2
    torch.set_num_threads(arguments.threads)
    try:
        service = EngineService(
            arguments.model.absolute(),
            name=arguments.served_model_name or arguments.model.absolute().name,
            label=arguments.weight_version,
            slots=arguments.max_num_seqs,
            length=arguments.max_model_len,
            most_waiting=arguments.max_waiting,
            rng=random.Random(arguments.seed),
        )
    except CheckpointRefused as error:
        print(f"evolved engine: {error}", file=sys.stderr)
        return 2
    if arguments.dev_mode and arguments.host not in ("127.0.0.1", "::1", "localhost"):
        _log.warning("engine.dev_mode_exposed", host=arguments.host)
    server = uvicorn.Server(
        uvicorn.Config(
            application(service, dev_mode=arguments.dev_mode),
            host=arguments.host,
            port=arguments.port,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            timeout_keep_alive=75,  # longer than clients keep a connection, so that they close first and never race
            timeout_graceful_shutdown=10,
            backlog=1024,
        )
    )
    _log.info("engine.starting", model=str(service.directory), port=arguments.port, dev_mode=arguments.dev_mode)
    server.run()
    return 0

"""A real vLLM on the CPU with the demo's warm start, from an environment of its own (`make test-vllm` builds it)."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.tapping import unused_port

PYTHON = Path(os.environ.get("EVOLVED_VLLM_PYTHON", ".venv-vllm/bin/python"))
MODEL = Path("daemon/demo/warmstart")
_OPTIONS = (
    "--served-model-name", "desk", "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "1024",
    "--enforce-eager", "--kv-cache-memory-bytes", str(64 << 20), "--enable-auto-tool-choice",
    "--tool-call-parser", "hermes",
)  # fmt: skip
_START_SECONDS = 300.0


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of a running server; its development endpoints are open, as they are for the swapper."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there: run `make test-vllm`, which builds it")
    port, log = unused_port(), tmp_path_factory.mktemp("vllm") / "log"
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    environment |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL), "--port", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen([*command, *_OPTIONS], env=environment, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        _await_health(url, server, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await_health(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"vLLM did not come up:\n{log.read_text(errors='replace')[-3000:]}")

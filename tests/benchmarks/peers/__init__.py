"""Other people's proxies, started the way they are at their fastest: Debian's nginx, and LiteLLM with one worker."""

import contextlib
import grp
import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import Process

FILES = Path(__file__).parent
ROOT = FILES.parents[2]
LITELLM = ROOT / ".venv-litellm" / "bin" / "litellm"


class PeerError(Exception):
    """A peer that is missing or does not start; the message says what to do."""


@contextlib.contextmanager
def nginx(engine_port: int, directory: Path) -> Iterator[int]:
    """nginx in front of the engine, one worker, nothing buffered; gives its port."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise PeerError("nginx is missing: apt install nginx-light wrk")
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    text = (FILES / "nginx.conf").read_text(encoding="utf-8")
    for name, value in (
        ("USER", pwd.getpwuid(os.getuid()).pw_name),
        ("GROUP", grp.getgrgid(os.getgid()).gr_name),
        ("DIRECTORY", str(directory)),
        ("PORT", str(port)),
        ("ENGINE_PORT", str(engine_port)),
    ):
        text = text.replace(f"@{name}@", value)
    (directory / "nginx.conf").write_text(text, encoding="utf-8")
    command = [binary, "-p", str(directory), "-c", str(directory / "nginx.conf")]
    with _running(command, port, directory / "nginx.log"):
        yield port


@contextlib.contextmanager
def litellm(engine_port: int, directory: Path, key: str) -> Iterator[int]:
    """LiteLLM's proxy in front of the engine, whose callers have to bring `key`; gives its port."""
    if not LITELLM.exists():
        raise PeerError("LiteLLM is missing: make bench-peers-setup (or leave it out with --no-litellm)")
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "ENGINE_URL": f"http://127.0.0.1:{engine_port}/v1",
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "127.0.0.1",
    }
    command = [str(LITELLM), "--config", str(FILES / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--num_workers", "1"]
    with _running(command, port, directory / "litellm.log", **settings):
        yield port


@contextlib.contextmanager
def _running(command: list[str], port: int, log: Path, **settings: str) -> Iterator[None]:
    with Process(command, log, env={**os.environ, **settings}) as process:
        try:
            process.until_listens(port)
        except AssertionError as error:
            raise PeerError(str(error)) from error
        yield

"""The real servers: how each is started."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.live.mcp import McpSettings

HERE = Path(__file__).parent
PYTHON_SERVERS = HERE.parents[1] / ".venv-mcp/bin"
NODE_SERVERS = HERE / "node_modules/.bin"


def node(server: str, *options: str) -> tuple[str, ...]:
    """The command of a server of npm's."""
    return (shutil.which("node") or "node", str((NODE_SERVERS / f"mcp-server-{server}").resolve()), *options)


def settings(server: str, directory: Path) -> McpSettings:
    """`server` over standard input and output; those that keep something keep it in `directory`."""
    if server in ("time", "git"):
        options = ("--repository", str(directory)) if server == "git" else ("--local-timezone", "Europe/Vienna")
        return McpSettings(command=(str(PYTHON_SERVERS / f"mcp-server-{server}"), *options))
    if server == "filesystem":
        return McpSettings(command=node(server, str(directory)))
    if server == "memory":
        return McpSettings(command=node(server), environment={"MEMORY_FILE_PATH": str(directory / "memory.jsonl")})
    return McpSettings(command=node(server))


@contextmanager
def everything_over_http() -> Iterator[str]:
    """The address of server-everything over streamable HTTP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        node("everything", "streamableHttp"), env={"PORT": str(port), "PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()

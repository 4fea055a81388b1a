"""The real servers: how each is started."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.live.mcp import McpSettings
from tests.support.ports import free_port
from tests.support.process import Process

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
    port = free_port()
    command, environment = node("everything", "streamableHttp"), {"PORT": str(port), "PATH": os.environ["PATH"]}
    with (
        tempfile.TemporaryDirectory() as directory,
        Process(command, Path(directory, "log"), env=environment) as process,
    ):
        process.until_listens(port)
        yield f"http://127.0.0.1:{port}/mcp"

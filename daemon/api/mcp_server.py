"""How our MCP servers are served: on standard input and output, or over streamable HTTP on this machine alone."""

import socket
from typing import TYPE_CHECKING, Any

import anyio

from daemon.errors import ConfigError
from daemon.tap.keys import is_loopback

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer


def run_server(made: "MCPServer[Any]", *, http: bool, host: str, port: int, risk: str) -> int:
    """Serve `made` until the client goes, or SIGTERM; the exit status.

    Args:
        http: streamable HTTP at /mcp instead of standard input and output.
        risk: what whoever reaches the port could do, for the error that refuses other addresses than this machine's.

    Raises:
        ConfigError: an address that others can reach, or that is taken.
    """
    if http:
        anyio.run(_serve_http, made, host, port, risk)
    else:
        anyio.run(made.run_stdio_async)
    return 0


async def _serve_http(made: "MCPServer[Any]", host: str, port: int, risk: str) -> None:
    import uvicorn

    if not is_loopback(host):
        raise ConfigError(
            f"--host {host!r}: whoever reaches this port {risk}; listen on 127.0.0.1, and put something that asks who "
            "it is in front of it"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigError(f"--port {port}: {error.strerror}; give a free one, 0 for any") from error
        listener.listen(128)
        where = f"[{host}]" if ":" in host else host
        # The only line; whoever starts it with port 0 reads the port there.
        print(f"http://{where}:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(made.streamable_http_app(host=host), log_level="warning")
        await uvicorn.Server(config).serve(sockets=[listener])

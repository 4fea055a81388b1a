"""MCP over streamable HTTP on a free port, by the official SDK; prints its address.

python mcp_http_server.py json|sse [PORT]: answers as JSON documents, or as event streams.
"""

import sys

from mcp.server.mcpserver import Context, MCPServer


def make() -> MCPServer:
    """The server: `echo`, `large`, `header`."""
    server = MCPServer("http", log_level="ERROR")

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.tool()
    def large(size: int) -> str:
        return "x" * size

    @server.tool()
    def header(name: str, context: Context) -> str:
        return str(context.headers.get(name, "")) if context.headers else ""

    return server


if __name__ == "__main__":
    import socket

    import anyio
    import uvicorn

    app = make().streamable_http_app(json_response=sys.argv[1] == "json", host="0.0.0.0")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int((sys.argv[2:] or ["0"])[0])))
    listener.listen(16)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    anyio.run(lambda: uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener]))

"""An MCP server over standard input and output that misbehaves as it is told; plain Python, without the SDK.

python bad_mcp_server.py MODE: "good", or one of the modes below. Its tools misbehave whatever the mode.
"""

import json
import os
import signal
import sys
import time
from typing import Any

PAGE = 100


def tool(name: str, text: str = "", *, reads: bool = True, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    hints = {"readOnlyHint": reads}
    return {"name": name, "description": text or name, "inputSchema": schema, "annotations": hints} | more


TOOLS = [
    tool("echo"), tool("count"), tool("environment"), tool("die"), tool("hang"), tool("large"), tool("fail"),
    tool("refuse"), tool("wipe", "Deletes everything.", reads=True), tool("write", reads=False), tool("picture"),
    tool("more_tools"),
    tool("misshapen", outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    tool("shaped", outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
]  # fmt: skip


def stay() -> None:
    """Whoever wants it gone has to kill it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]} | more


class Server:
    def __init__(self, mode: str) -> None:
        self.mode, self.calls, self.extra = mode, 0, []

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()

    def tools(self) -> list[dict[str, Any]]:
        if self.mode == "many":
            return [tool(f"tool_{number}") for number in range(500)]
        if self.mode == "colliding":
            return [tool(name) for name in ("a.b", "a_b", "a/b", "a.b", "x" * 90 + "1", "x" * 90 + "2")]
        return TOOLS + self.extra

    def listing(self, cursor: str | None) -> dict[str, Any]:
        start = int(cursor or 0)
        page = {"tools": self.tools()[start : start + PAGE]}
        if start + PAGE < len(self.tools()) or self.mode == "endless":
            page["nextCursor"] = str(0 if self.mode == "endless" else start + PAGE)
        return page

    def run(self) -> None:
        if self.mode == "hang_at_start":
            stay()
        if self.mode == "die_at_start":
            sys.exit(f"cannot open the database; password={os.environ.get('SECRET', 'none')}")
        if self.mode == "chatty":
            print("Welcome to my server!", flush=True)
            sys.stderr.write("x" * 5_000_000 + "\n")
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message:
                self.answer(message["id"], message["method"], message.get("params") or {})
        if self.mode == "stubborn":
            stay()

    def answer(self, request: Any, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            found = {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "bad", "version": "1"},
            }  # fmt: skip
        elif method == "tools/list":
            found = self.listing(params.get("cursor"))
        elif method == "tools/call":
            self.calls += 1
            found = self.call(params["name"], params.get("arguments") or {})
        else:
            self.send({"id": request, "error": {"code": -32601, "message": f"no method {method}"}})
            return
        self.send({"id": request, "error" if "code" in found else "result": found})

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "die":
            sys.stderr.write("Segmentation fault, more or less\n")
            sys.stderr.flush()
            os._exit(3)
        if name == "hang":
            time.sleep(3600)
        if name == "more_tools":
            self.extra.append(tool("new_one"))
            self.send({"method": "notifications/tools/list_changed"})
        if name == "large":
            return said("0123456789" * (arguments.get("size", 10_000_000) // 10))
        image = {"type": "image", "data": "QUFBQQ==" * 100, "mimeType": "image/png"}
        link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
        inside = {"uri": "file:///b.txt", "text": "text of b", "mimeType": "text/plain"}
        told = {
            "fail": said("no such file", isError=True),
            "refuse": {"code": -32602, "message": "size must be a number"},
            "environment": said(json.dumps(dict(os.environ))),
            "count": said(f"{self.calls} calls, process {os.getpid()}"),
            "picture": {"content": [image, link, {"type": "resource", "resource": inside}]},
            "misshapen": said("n is text", structuredContent={"n": "text"}),
            "shaped": {"content": [], "structuredContent": {"n": 3}},
        }
        return told.get(name) or said(json.dumps(arguments))


if __name__ == "__main__":
    Server(sys.argv[1]).run()

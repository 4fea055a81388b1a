"""A chat endpoint that answers as it is told, over real HTTP: for adapters that speak to language models."""

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Reply = Callable[[dict[str, Any]], tuple[int, bytes]]


class ChatEndpoint:
    """Serves scripted replies, one a request, the last one again and again; a context manager.

    Args:
        replies: what to do with a request's JSON: status and body.
    """

    def __init__(self, *replies: Reply) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                number = len(endpoint.requests)
                endpoint.requests.append(body)
                endpoint.keys.append(self.headers.get("authorization", ""))
                status, data = replies[min(number, len(replies) - 1)](body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "ChatEndpoint":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def says(text: str | Callable[[str], str] | None, reason: str = "stop", tokens: int = 100, **message: Any) -> Reply:
    """A completion; `text` may be made from the call's nonce."""

    def reply(body: dict[str, Any]) -> tuple[int, bytes]:
        content = text(nonce_of(body)) if callable(text) else text
        choice = {
            "index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": content, **message},
        }  # fmt: skip
        return 200, json.dumps(
            {
                "id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice],
                "usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1, "total_tokens": tokens},
            }
        ).encode()  # fmt: skip

    return reply


def fails(status: int, body: bytes = b'{"error": {"message": "no"}}') -> Reply:
    """An HTTP error, or whatever `body` is."""
    return lambda _: (status, body)


def nonce_of(body: dict[str, Any]) -> str:
    """The nonce of the call, as a model would read it."""
    found = re.search(r"lines that begin with (\w+)", body["messages"][0]["content"])
    return found[1] if found else ""

"""An endpoint for `POST /v1/embeddings` on loopback that answers as it is told: well, wrongly, late or not at all."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import msgspec

from adapters.embedders.hashing import HashingEmbedder

Answer = tuple[int, bytes]
"""Status and body."""
Script = Callable[[dict[str, Any]], Answer]
"""What a request, its JSON body, is answered with."""


class Asked(msgspec.Struct):
    """A request."""

    body: dict[str, Any]
    authorization: str


def honest(dimension: int = 256) -> Script:
    """Vectors of a small local model, not of length 1, in an order of the server's own."""
    model = HashingEmbedder(dimension=dimension)

    def answer(body: dict[str, Any]) -> Answer:
        vectors = anyio.run(model.embed, body["input"]) * 3.0
        return listed([vector.tolist() for vector in vectors], body["model"], reverse=True)

    return answer


def listed(vectors: list[Any], model: str = "m", *, reverse: bool = False) -> Answer:
    """A well-formed answer with `vectors`."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    body = {"object": "list", "data": data[::-1] if reverse else data, "model": model, "usage": usage}
    return 200, json.dumps(body).encode()


class EmbeddingServer:
    """Listens from the start of its `with` to the end; `script` may be replaced at any time."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script, self._port = script or honest(), port
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        """With `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "EmbeddingServer":
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(Asked(body, self.headers.get("authorization", "")))
                status, answer = outer.script(body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                with contextlib.suppress(OSError):  # whoever asked has left
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Tests speak for themselves."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def hanging(seconds: float) -> Script:
    """Answers well, but so late that nobody waits for it."""

    def answer(body: dict[str, Any]) -> Answer:
        time.sleep(seconds)
        return honest()(body)

    return answer

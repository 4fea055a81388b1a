"""A small HTTP API on a real socket that answers as it is told and remembers what it was asked."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

import msgspec


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as it came."""

    method: str
    path: str
    """Still percent-encoded, without the query."""
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The query, decoded."""
        return parse_qsl(self.query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        """The body, a form."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


class Said(msgspec.Struct, frozen=True):
    """An answer."""

    status: int = 200
    body: Any = None
    """Bytes as they are, anything else as JSON."""
    headers: dict[str, str] = {}


class HttpApi:
    """A context manager; `answer` may be exchanged at any time."""

    def __init__(self, answer: Callable[[Asked], Said] | None = None, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.answer = answer or (lambda asked: Said(body={"ok": True}))
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def reply(self) -> None:
                path, _, query = self.path.partition("?")
                asked = Asked(
                    method=self.command,
                    path=path,
                    query=query,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(int(self.headers.get("content-length") or 0)),
                )
                api.asked.append(asked)
                said = api.answer(asked)
                data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
                self.send_response(said.status)
                for name, value in {"content-type": "application/json", **said.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = reply

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "HttpApi":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

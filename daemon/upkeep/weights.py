"""Weights between nodes, put together: the learner's side serves its versions, the daemon's side pulls them.

GET /v000007/manifest.json, /v000007/manifest.sig, /v000007/FILE     of versions that are whole; Range is understood

Read-only, and only files that a manifest names. Loopback by default; on any other address whoever asks shows a token
(RFC 6750), because weights are the company's.
"""

import hmac
import ssl
from pathlib import Path

import anyio.to_thread
import httpx
import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from actors.messages import MANIFEST, SIGNATURE, Manifest, bad_file
from adapters.weights import Check, WeightSource
from adapters.weights.http import HttpPull
from adapters.weights.shared import SharedPath
from daemon.errors import ConfigError
from daemon.settings.secret import secret
from daemon.settings.tables import Weights
from daemon.tap.keys import is_loopback

_SHORTEST_TOKEN = 32
_LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]


class _Blocks(FileResponse):
    """A file in larger pieces than the default's 64 KiB, each of which costs a turn through a thread."""

    chunk_size = 1 << 20


def server(host: str, token_file: str, versions: Path) -> Starlette:
    """The application that serves `versions` at `host`. Other than on loopback only with a token, and behind something
    that speaks TLS: weights and token travel with every request."""
    token = _token(token_file)
    if not token and not is_loopback(host):
        raise ConfigError(
            f"weights.listen {host!r}: others can reach it and it asks for no token; name a file of one here "
            "and at the engines' node, weights.token_file (openssl rand -hex 32 > FILE), or listen on 127.0.0.1"
        )
    expected = f"Bearer {token}".encode()

    async def file(request: Request) -> Response:
        shown = request.headers.get("authorization", "").encode("latin-1")
        if token and not hmac.compare_digest(shown, expected):
            return _error(401, "show the token of weights.token_file as a bearer's")
        name = request.path_params["name"]
        found = await anyio.to_thread.run_sync(_find, versions, request.path_params["version"], name)
        if found is None:
            return _error(404, "no such version, or its manifest names no such file")
        return _Blocks(found, media_type="application/octet-stream")

    # Without a token a page elsewhere could read along through a browser here, by a name that it makes point at us.
    guards = [] if token else [Middleware(TrustedHostMiddleware, allowed_hosts=_LOOPBACK)]
    return Starlette(routes=[Route("/{version}/{name}", file)], middleware=guards)


def _find(versions: Path, version: str, name: str) -> Path | None:
    """The file `name` of `version` if its manifest names it, and it is a file and no link."""
    if not (version.startswith("v") and version[1:].isascii() and version[1:].isdecimal()):
        return None
    directory = versions / version
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    listed = set[str]() if bad_file(manifest) else {entry.name for entry in manifest.files}
    path = directory / name
    if name not in listed | {MANIFEST, SIGNATURE} or path.is_symlink() or not path.is_file():
        return None
    return path


def source(
    settings: Weights, versions: Path, *, keep: int, check: Check
) -> tuple[WeightSource, httpx.AsyncClient | None]:
    """Where the daemon gets weights from, and the client to be closed with it."""
    if not settings.source:
        return SharedPath(check=check), None
    if not settings.source.startswith(("http://", "https://")):
        raise ConfigError(f"weights.source {settings.source!r}: write it with http:// or https://")
    token = _token(settings.token_file)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    http = httpx.AsyncClient(headers=headers, verify=ssl.create_default_context(), trust_env=False)
    return HttpPull(settings.source.rstrip("/"), versions, keep=keep, check=check, http=http), http


def _token(file: str) -> str:
    remedy = f"openssl rand -hex 32 > FILE makes one, of {_SHORTEST_TOKEN} characters or more"
    token = secret(file, "weights.token_file", remedy)
    if file and len(token) < _SHORTEST_TOKEN:
        raise ConfigError(f"weights.token_file {file}: the token is too short; {remedy}")
    return token


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)

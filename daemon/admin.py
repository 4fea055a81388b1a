"""Who may use the control API and the dashboard: whoever shows an admin key, once there is one.

A script shows it in `x-evolved-key` or as a bearer's token; a browser asks for it as the password of a login (any user
name will do), so that the dashboard needs no page, cookie or session of its own. Without an admin key the API is open,
and then it must not be open to more than this machine.
"""

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.errors import ConfigError
from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import PREFIX, KeyRing, is_loopback, presented

_SAFE = frozenset({"GET", "HEAD"})
WHO = "admin_key"
"""In a request's state: the id of the admin key that it came with."""


class AdminOnly:
    """ASGI middleware: lets requests with an admin key pass; all, while there is none."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing | None) -> None:
        """
        Args:
            keys: looked into anew at every request, so that a revoked key is one at once; none: nobody has keys.
        """
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer: ASGIApp = self._app
        if scope["method"] not in _SAFE and _from_elsewhere(headers):
            answer = _refused(403, "a page of another site must not give orders here")
        elif (who := self._who(headers)) is None:
            answer = _refused(
                401,
                "an admin key is needed, in x-evolved-key, as a bearer's token, or as the password of a browser's "
                "login; make one with `evolved keys add --scope admin`",
            )
        else:
            scope.setdefault("state", {})[WHO] = who
        await answer(scope, receive, send)

    def _who(self, headers: Headers) -> str | None:
        """Id of the admin key that was shown, empty if none is needed; None: refuse."""
        keys = self._keys
        if keys is None:
            return ""
        keys.refresh()
        if not keys.guarded:
            return ""
        own, authorization = headers.get("x-evolved-key", ""), headers.get("authorization", "")
        shown = presented(own.encode("latin-1"), authorization.encode("latin-1"))
        key = keys.find(shown) if shown else None
        return key.id if key is not None and key.scope == "admin" else None


def admin_keys(path: Path | None, host: str, *, clock: Callable[[], float] = time.time) -> KeyRing | None:
    """The keys that guard the control API on `host`; none if nobody has keys.

    Raises:
        ConfigError: a key file that cannot be used, or a host that others can reach without an admin key being there.
    """
    try:
        keys = None if path is None else KeyRing(path, clock=clock)
    except KeysUnusable as error:
        raise ConfigError(f"tap.door.keys_file: {error}") from error
    if not is_loopback(host) and (keys is None or not keys.guarded):
        raise ConfigError(
            f"control.host {host!r}: others can reach it and it has no admin key; make one with `evolved keys add "
            "--scope admin` and set tap.door.keys_file, or listen on 127.0.0.1"
        )
    return keys


def key_headers(file: str) -> dict[str, str]:
    """What shows the admin key in `file` to the control API; nothing if no file is named.

    Raises:
        ConfigError: the file cannot be read, or has no key in it.
    """
    if not file:
        return {}
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"control.admin_key_file {file}: {error}; give a file that holds an admin key") from error
    if not key.startswith(PREFIX.decode()) or len(key.split()) != 1:
        raise ConfigError(f"control.admin_key_file {file}: no key in it; give a file that holds an admin key alone")
    return {"x-evolved-key": key}


def _from_elsewhere(headers: Headers) -> bool:
    """Whether a browser sent it from a page that is not ours: it would send the login along."""
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _refused(status: int, message: str) -> JSONResponse:
    asking = {"www-authenticate": 'Basic realm="evolved", charset="UTF-8"'} if status == 401 else None
    return JSONResponse({"error": {"message": message}}, status_code=status, headers=asking)

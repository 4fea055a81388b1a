"""Who may use the control API and the dashboard: whoever shows a key of a scope that opens it, once there is one.

A script shows it in `x-evolved-key` or as a bearer's token; a browser asks for it as the password of a login (any user
name will do), so that the dashboard needs no page, cookie or session of its own. Without an operator's key the API is
open, and then it must not be open to more than this machine. What opens what, `daemon.api.scopes` says.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.core import Metric
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.api.auth_throttle import AuthThrottle
from daemon.api.scopes import needed
from daemon.errors import ConfigError
from daemon.figures import counter
from daemon.tap.errors import Refused
from daemon.tap.keys import Key, KeyRing, check_host, is_loopback

_SAFE = frozenset({"GET", "HEAD"})
_REASON = {"missing_key": "no_key", "invalid_key": "wrong_key", "wrong_scope": "scope"}
REASONS = (*_REASON.values(), "too_many_tries", "other_site")
WHO = "operator_key"
"""In a request's state: the key that it came with; None while none is needed."""


class AdminOnly:
    """ASGI middleware: lets requests with an operator's key pass to what its scope opens; all, while there is none."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyRing | None,
        routes: Sequence[BaseRoute],
        tries: AuthThrottle | None = None,
        refused: Counter[str] | None = None,
    ) -> None:
        """
        Args:
            keys: looked into anew at every request, so that a revoked key is one at once; none: nobody has keys.
            routes: of `app`.
            tries: wrong keys by address.
            refused: counts refusals, by `REASONS`.
        """
        self._app, self._keys, self._routes = app, keys, routes
        self._tries = AuthThrottle(clock=time.monotonic) if tries is None else tries
        self._refused: Counter[str] = Counter() if refused is None else refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """What is said instead of what was asked for; None: let it pass, with its key in the request's state."""
        headers, state = Headers(scope=scope), scope.setdefault("state", {})
        state[WHO] = None
        if scope["method"] not in _SAFE and _from_elsewhere(headers):
            return self._refuse("other_site", 403, "a page of another site must not give orders here")
        if self._keys is None:
            return None
        self._keys.refresh()
        if not self._keys.guarded:
            return None
        try:
            state[WHO] = self._keys.check(dict(scope["headers"]), *needed(self._routes, scope))
        except Refused as refusal:
            return self._unopened(scope, refusal)
        return None

    def _unopened(self, scope: Scope, refusal: Refused) -> JSONResponse:
        if refusal.code == "invalid_key":
            client = scope.get("client")
            wait = self._tries.failed(client[0] if client else "")
            if wait:
                answer = self._refuse("too_many_tries", 429, "too many wrong keys from this address; try again later")
                answer.headers["retry-after"] = str(math.ceil(wait))
                return answer
        answer = self._refuse(_REASON[refusal.code], refusal.status, str(refusal))
        if refusal.status == 401:
            answer.headers["www-authenticate"] = 'Basic realm="evolved", charset="UTF-8"'
        return answer

    def _refuse(self, why: str, status: int, message: str) -> JSONResponse:
        self._refused[why] += 1
        return JSONResponse({"error": {"message": message}}, status_code=status)


def refusal_figures(refused: Counter[str]) -> Iterator[Metric]:
    numbers = {reason: refused[reason] for reason in REASONS}
    yield counter("evolved_control_refused", "Requests that the control API's door refused.", numbers, "reason")


def holder(state: object) -> Key | None:
    """The key that a request with `state` came with; None while none is needed."""
    found = getattr(state, WHO, None)
    return found if isinstance(found, Key) else None


def admin_keys(
    path: Path | None, host: str, *, protected: bool = True, clock: Callable[[], float] = time.time
) -> KeyRing | None:
    """The keys that guard the control API on `host`; none if nobody has keys.

    Args:
        protected: the way to it is encrypted.

    Raises:
        KeysUnusable: the file at `path`, or others can reach the host and there is no operator's key.
        ConfigError: they can, over a way that others can read.
    """
    keys = None if path is None else KeyRing(path, clock=clock)
    check_host("control.listen", host, keys)
    if not protected and not is_loopback(host):
        raise ConfigError(
            f"control.listen {host!r}: keys would cross the network in plain text; set control.tls_cert and "
            "control.tls_key, or control.behind_proxy = true if something in front of it speaks TLS, or listen on "
            "127.0.0.1"
        )
    return keys


def _from_elsewhere(headers: Headers) -> bool:
    """Whether a browser sent it from a page that is not ours: it would send the login along."""
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")

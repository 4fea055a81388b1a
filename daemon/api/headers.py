"""Headers that tell a browser to be careful with what the control API answers (OWASP Secure Headers Project).

A page may have set its own Content-Security-Policy; then that one stands, and says who may frame it.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
}
_HSTS = "max-age=31536000"
"""RFC 6797. A year; without includeSubDomains: other services of the host are not ours to decide about."""


class SecurityHeaders:
    """ASGI middleware: adds what an answer does not have yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":  # over plain HTTP a browser must ignore it
                    headers.setdefault("strict-transport-security", _HSTS)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, sending)

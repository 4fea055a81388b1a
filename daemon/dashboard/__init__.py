"""The dashboard: static pages that read the control API; no build step, nothing from elsewhere.

The pages show what agents and their tools wrote, which may be anything. They put it in as text, never as markup, and
the browser is told to hold them to it: no script but ours, no style but ours, no connection but to us.
"""

from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
"""Of every answer. Trusted Types (W3C, 2025) makes `innerHTML` and its like throw."""


class Dashboard:
    """ASGI application: the files of `STATIC`, with `HEADERS`."""

    def __init__(self) -> None:
        self._files = StaticFiles(directory=STATIC, html=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._files(scope, receive, sent)

"""`Transport`: requests with a bound on time, bytes and redirects.

A redirect is followed on the same origin alone: elsewhere nobody was told to send keys to. A compressed answer is
inflated up to its bound and no further.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from actors.ports.errors import LiveApiMalformed, LiveApiUnavailable
from adapters.live.openapi.auth import origin

_REDIRECTS = 5
_AGENT = "evolved"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    cut: bool
    """There was more than was read."""


class Transport:
    """Sends requests for one API; `aclose()` at the end.

    Args:
        transport: that of httpx; None: the network. Documents and tokens come through it as well, so that one which
            checks addresses checks them all.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport | None) -> None:
        # Neither proxies nor .netrc of the environment: what is sent is what the settings say.
        # The caller's deadline is the only one.
        self._client = httpx.AsyncClient(
            transport=transport, follow_redirects=False, timeout=httpx.Timeout(None), trust_env=False
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def send(
        self,
        method: str,
        url: httpx.URL,
        *,
        limit: int,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """
        Args:
            limit: bytes of the answer.

        Raises:
            LiveApiUnavailable: it cannot be reached or breaks off; the message holds no more of the URL than its host.
            LiveApiMalformed: no HTTP, or in an encoding that was not asked for.
        """
        sent = {
            "user-agent": _AGENT,
            "accept": "application/json, */*;q=0.5",
            "accept-encoding": "gzip",
            **(headers or {}),
        }
        if cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        start = origin(url)
        for _ in range(_REDIRECTS):
            answer = await self._once(method, url, sent, content, limit)
            target = answer.headers.get("location", "")
            if answer.status not in (301, 302, 303, 307, 308) or not target:
                return answer
            try:
                url = url.join(target)
            except httpx.InvalidURL:
                return answer
            if origin(url) != start or (answer.status in (301, 302) and method not in ("GET", "HEAD")):
                return answer
            if answer.status == 303:
                method, content = "GET", None
        raise LiveApiMalformed(f"{url.host} redirects without an end")

    async def _once(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None, limit: int
    ) -> Answer:
        # The client keeps cookies that servers set; a call of one agent must not be seen in that of another.
        self._client.cookies.clear()
        try:
            async with self._client.stream(method, url, headers=dict(headers), content=content) as response:
                data, cut = await _read(response, limit)
                return Answer(status=response.status_code, headers=response.headers, data=data, cut=cut)
        except (httpx.ProtocolError, httpx.DecodingError, httpx.UnsupportedProtocol, zlib.error) as error:
            if isinstance(error, httpx.RemoteProtocolError):
                raise LiveApiUnavailable(f"{url.host}: the answer broke off: {type(error).__name__}") from None
            raise LiveApiMalformed(f"{url.host}: {type(error).__name__}") from None
        except httpx.HTTPError as error:
            # `from None`: the request, with its keys, hangs on the original.
            raise LiveApiUnavailable(f"{url.host} cannot be reached: {type(error).__name__}") from None


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    inflate: Any = None
    if coding in ("gzip", "x-gzip", "deflate"):
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    elif coding not in ("identity", ""):
        raise LiveApiMalformed(f"{response.url.host} answers in the encoding {coding[:40]!r}; gzip was asked for")
    data = bytearray()
    async for piece in response.aiter_raw():
        data += inflate.decompress(piece, limit + 1 - len(data)) if inflate else piece
        if len(data) > limit:
            return bytes(data[:limit]), True
    return bytes(data), False

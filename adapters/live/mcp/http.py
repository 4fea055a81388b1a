"""The HTTP client below a server that speaks streamable HTTP: guarded, bounded, without redirects and proxies."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from adapters.live.addresses import AddressGuard

_CONNECT_SECONDS = 15.0


@asynccontextmanager
async def streams(
    url: str,
    *,
    headers: Mapping[str, str],
    guard: AddressGuard | None,
    max_message: int,
    idle_seconds: float,
    failed: Callable[[int], None],
) -> AsyncIterator[TransportStreams]:
    """The SDK's streams to the server at `url`.

    Args:
        headers: sent with each request.
        guard: decides what may be connected to; None: anything, because the operator named it.
        max_message: bytes of one message.
        idle_seconds: for which a stream may be silent.
        failed: told the HTTP status of an answer that is an error; the SDK does not say it.
    """
    client = httpx2.AsyncClient(
        transport=_Guarded(guard, max_message, failed),
        # Compressed answers could be larger than they look.
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=idle_seconds),
        trust_env=False,  # a proxy would resolve the name once more
        max_redirects=0,
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=max_message) as opened:
        yield opened


class _Guarded(httpx2.AsyncBaseTransport):
    """Connects to the address that was checked; the name stays in the Host header and in TLS."""

    def __init__(self, guard: AddressGuard | None, max_message: int, failed: Callable[[int], None]) -> None:
        self._guard, self._most, self._failed = guard, max_message, failed
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        sent = request
        if self._guard is not None:
            tls = request.url.scheme == "https"
            port = request.url.port or (443 if tls else 80)
            address = await self._guard.resolve(request.url.host, port, tls=tls)
            sent = httpx2.Request(
                request.method, request.url.copy_with(host=address), headers=request.headers, stream=request.stream,
                extensions={**request.extensions, **({"sni_hostname": request.url.host} if tls else {})},
            )  # fmt: skip
        response = await self._inner.handle_async_request(sent)
        if response.status_code >= 400:
            self._failed(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, though that was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._most)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream, self._left = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError("the answer is longer than max_message")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()

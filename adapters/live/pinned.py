"""An httpx transport that connects to the address that was checked, and to no other."""

import httpx

from adapters.live.addresses import AddressGuard


class PinnedTransport(httpx.AsyncBaseTransport):
    """Resolves, checks and connects; the name stays in the Host header and in TLS.

    Raises, of a request:
        LiveApiRefused, LiveApiUnavailable: as `AddressGuard.resolve`.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        tls = request.url.scheme == "https"
        port = request.url.port or (443 if tls else 80)
        address = await self._guard.resolve(request.url.host, port, tls=tls)
        extensions = {**request.extensions, **({"sni_hostname": request.url.host} if tls else {})}
        return await self._inner.handle_async_request(
            httpx.Request(
                request.method, request.url.copy_with(host=address), headers=request.headers, stream=request.stream,
                extensions=extensions,
            )
        )  # fmt: skip

    async def aclose(self) -> None:
        await self._inner.aclose()

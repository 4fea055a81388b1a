"""Which addresses may be connected to for somebody else: none of our own network (server-side request forgery).

    URL -> host -> every address that its name resolves to -> checked -> the one that is connected to

The address that was checked is the one that is connected to, so a name that resolves to something else a moment later
(DNS rebinding) gains nothing. Redirects are for the caller not to follow. See the OWASP cheat sheet "Server Side
Request Forgery Prevention"; ranges are those of the IANA registries of special purpose addresses (RFC 6890).
"""

import ipaddress
import socket
from collections.abc import Sequence

import anyio
from anyio import getaddrinfo

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.chat.keys import checked_url

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_SERVICES = (ipaddress.ip_address("168.63.129.16"),)
"""Looks global and is not: the host's agent in Azure, which gives out certificates and settings of the machine."""
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_RESOLVE_SECONDS = 10.0


class AddressGuard:
    """What may be connected to."""

    def __init__(self, *, allow_private: Sequence[str] = ()) -> None:
        """
        Args:
            allow_private: hosts, addresses and networks that may be reached although not public, and without TLS.

        Raises:
            ValueError: a network that is none.
        """
        self._hosts = frozenset(entry.lower() for entry in allow_private if _network(entry) is None)
        self._networks = tuple(net for entry in allow_private if (net := _network(entry)) is not None)

    async def check(self, url: str) -> str:
        """The address that `url` may be connected to, its name resolved."""
        try:
            parts = checked_url(url)
        except ValueError as error:
            raise LiveApiRefused(str(error)) from error
        assert parts.hostname is not None
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return await self.resolve(parts.hostname, port, tls=parts.scheme == "https")

    async def resolve(self, host: str, port: int, *, tls: bool) -> str:
        """The address to connect to for `host`: the first of its addresses, if all of them may be connected to.

        Raises:
            LiveApiRefused, LiveApiUnavailable: as `check`.
        """
        host = host.lower().rstrip(".").strip("[]")
        try:
            with anyio.fail_after(_RESOLVE_SECONDS):
                found = await getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise LiveApiUnavailable(f"{host}: the name cannot be resolved ({type(error).__name__})") from error
        addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]
        for address in addresses:
            self._allow(host, address, tls)
        return str(addresses[0])

    def _allow(self, host: str, address: Address, tls: bool) -> None:
        if host in self._hosts or any(address in network for network in self._networks):
            return
        if not is_public(address):
            raise LiveApiRefused(
                f"{host} is at {address}, which is not public; if it is meant, name the host, the address or its "
                "network in apis.allow_hosts"
            )
        if not tls:
            raise LiveApiRefused(f"{host}: http:// only to hosts in apis.allow_hosts; use https://")


def is_public(address: Address) -> bool:
    """Whether `address` is on the public internet, the address that is inside of it too, if there is one."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if any(address in network for network in _NAT64):
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is not None and not is_public(inside):
            return False
        if address.ipv4_mapped is not None:
            return True
    return address.is_global and not address.is_multicast and not address.is_reserved and address not in _SERVICES


def _network(entry: str) -> Network | None:
    """`entry` as a network; None if it is a host's name."""
    try:
        return ipaddress.ip_network(entry.strip("[]"))
    except ValueError:
        if "/" in entry:
            raise ValueError(f"{entry!r} is no network; write one such as 10.2.0.0/16, or a host's name") from None
        return None

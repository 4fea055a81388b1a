"""Where the bus is and how we get in: the settings of [bus], checked before anything connects.

Secrets are named by file, never written here: a file is read again for every connection, so a renewed certificate or a
changed password needs no restart.
"""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NATS that everything streams over."""

    url: str = ""
    """nats://host:port of your own, or tls://host:port; several servers of a cluster with commas between them. Empty
    for the one that `evolved broker` runs on this machine."""
    user: str = ""
    """User at your own NATS."""
    password_file: str = ""
    """File that holds its password."""
    credentials_file: str = ""
    """A .creds file (JWT and seed), as `nsc` makes them."""
    ca_file: str = ""
    """PEM file with the authority of the servers' certificates; empty: those that this machine trusts. Naming one wants
    TLS, as tls:// does: a server without it is refused, and hears no password."""
    certificate_file: str = ""
    """PEM file with our client certificate and its chain, where the servers want one."""
    key_file: str = ""
    """PEM file with its private key, without a passphrase; empty if it stands in certificate_file."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Servers that keep a copy of every stream; 3 in a cluster of three or more: one may then die."""

    def __post_init__(self) -> None:
        for server in self.servers:
            _check(server)
        if len({wants_tls(server) for server in self.servers}) > 1:
            raise ValueError(f"url = {self.url!r} has nats:// and tls:// servers; write tls:// before each")
        given = [name for name in ("user", "credentials_file") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError("user and credentials_file are two ways to log in; keep the one that your servers want")
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file go together; set both or neither")
        if self.key_file and not self.certificate_file:
            raise ValueError("key_file without certificate_file; name the certificate as well")
        files = [name for name in (*given, "ca_file", "certificate_file") if getattr(self, name)]
        if files and not self.url:
            raise ValueError(f"{files[0]} is for a NATS of your own; set url as well")

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs one by one."""
        return tuple(part.strip() for part in self.url.split(",") if part.strip())

    @property
    def tls(self) -> bool:
        """Whether a connection without TLS is refused."""
        return bool(self.ca_file or self.certificate_file) or any(wants_tls(server) for server in self.servers)


def wants_tls(server: str) -> bool:
    """Whether the URL asks for TLS."""
    return server.startswith("tls://")


def _check(server: str) -> None:
    if "@" in server:
        # Not shown: the configuration is printed and logged.
        raise ValueError("url has a user or password in it; put them into user and password_file")
    try:
        parts = urlsplit(server)
        good = parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"url = {server!r} is no address of a NATS server; write nats://host:4222 or tls://host:4222")

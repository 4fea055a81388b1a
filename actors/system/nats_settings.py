"""Where the bus is and how we get in: what [nats] says, checked where it is read.

Secrets are named by file, never written here: a file is read again for every connection, so a renewed certificate or a
changed password needs no restart.
"""

from typing import Annotated

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
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Servers that keep a copy of every stream; 3 in a cluster of three or more: one may then die."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs one by one."""
        return tuple(part.strip() for part in self.url.split(",") if part.strip())

    @property
    def tls(self) -> bool:
        """Whether a connection without TLS is refused."""
        return bool(self.ca_file) or any(wants_tls(server) for server in self.servers)


def wants_tls(server: str) -> bool:
    """Whether the URL asks for TLS."""
    return server.startswith("tls://")

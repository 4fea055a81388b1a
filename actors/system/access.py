"""Getting into a NATS: addresses, login and TLS, and what a refusal means.

Everything that stands in a file is read when a connection is made, also one that is won back: whoever renews a
certificate or changes a password need not restart us. What nats-py leaves open is closed here: it would talk in the
clear to a server that offers no TLS, and it reads a .creds file without a JWT in an endless loop.
"""

import base64
import re
import ssl
from pathlib import Path
from typing import Any, cast

import msgspec
import nats.errors
import nkeys as untyped_nkeys  # pyright: ignore[reportMissingTypeStubs]
from nats.aio.client import Client

_CREDENTIALS = re.compile(
    rb"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+"
    rb".*-----BEGIN USER NKEY SEED-----\s+(\S+)\s+-+END USER NKEY SEED-+",
    re.DOTALL,
)


class AccessUnusable(nats.errors.Error):
    """There is no way in as the settings are; the text names setting, file and remedy. One of nats-py's errors, because
    it is raised inside its reconnection loop, which any other kind would end for good."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where the servers are and how to get in."""

    servers: tuple[str, ...]
    """nats://host:port or tls://host:port, of one cluster."""
    user: str = ""
    password: str = ""
    """With `user`, at the embedded broker: its own file has been read."""
    secret_file: str = ""
    """With `user` the file that holds his password, else a .creds file (JWT and seed), as `nsc` makes them."""
    ca_file: str = ""
    """PEM file with the authority of the servers' certificates; empty: those that this machine trusts."""
    replicas: int = 1
    """Servers that keep a copy of every stream; 3 in a cluster of three or more: one may then die."""

    def __repr__(self) -> str:
        # Without the password, wherever it is printed.
        return f"Access({','.join(self.servers)})"

    @property
    def tls_only(self) -> bool:
        """Whether a server without TLS is refused, before it hears a password."""
        return bool(self.ca_file) or any(server.startswith("tls://") for server in self.servers)

    def tls(self) -> ssl.SSLContext:
        """A fresh context with the files as they are now."""
        if not self.ca_file:
            return ssl.create_default_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=self._read("ca_file").decode())
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise AccessUnusable(f"{self._named('ca_file')} cannot be used: {error}; it must be PEM") from error
        return context

    def options(self) -> dict[str, Any]:
        """What nats-py's `connect` is told."""
        told: dict[str, Any] = {"tls": self.tls()}
        if self.secret_file and self.user:
            self._password()
            return told | {"user": self.user, "password": self._password}
        if self.secret_file:
            self._credentials()
            return told | {"user_jwt_cb": lambda: bytearray(self._credentials()[0]), "signature_cb": self._signed}
        return told | ({"user": self.user, "password": self.password} if self.user else {})

    def refusal(self, error: BaseException) -> str:
        """Why trying again is useless, with the setting and the remedy; empty if it may help."""
        text = str(error).lower()
        if isinstance(error, AccessUnusable):
            return str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate is refused: {error.verify_message}; nats.ca_file names its authority, and "
                "nats.url the host by a name that it has"
            )
        if isinstance(error, ssl.SSLError) and re.search("CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE", error.reason or ""):
            return "the server wants a client certificate, and evolved shows none: let it take a user or a .creds file"
        if "authorization violation" not in text and "authentication" not in text:
            return ""
        if self.secret_file:
            told = f"see the user {self.user!r} in nats.url and {self._named('secret_file')}"
            return f"the server refuses our login: {told if self.user else self._named('secret_file') + ' may be old'}"
        if self.password:
            return "its credentials.json is not that server's: another NATS may have taken the port of `evolved broker`"
        return (
            "the server refuses our login: write the user into nats.url (nats://USER@HOST) and his password into "
            "nats.secret_file, or name a .creds file there"
        )

    def _named(self, name: str) -> str:
        return f"nats.{name} = {getattr(self, name)}"

    def _read(self, name: str) -> bytes:
        try:
            return Path(getattr(self, name)).read_bytes()
        except OSError as error:
            raise AccessUnusable(
                f"{self._named(name)} cannot be read: {error.strerror}; let this process's user read it, "
                "or name another file"
            ) from error

    def _password(self) -> str:
        text = self._read("secret_file").decode(errors="replace").strip()
        if not text:
            raise AccessUnusable(f"{self._named('secret_file')}: the file is empty; put the password in")
        return text

    def _credentials(self) -> tuple[bytes, bytes]:
        """JWT and seed."""
        found = _CREDENTIALS.search(self._read("secret_file"))
        if found is None:
            raise AccessUnusable(
                f"{self._named('secret_file')} has no JWT block with an NKEY SEED block after it; make the file anew, "
                "for example with `nsc generate creds`"
            )
        return found[1], found[2]

    def _signed(self, nonce: str) -> bytes:
        _, seed = self._credentials()
        try:
            return base64.b64encode(cast(Any, untyped_nkeys).from_seed(bytearray(seed)).sign(nonce.encode()))
        except Exception as error:  # nkeys raises a dozen kinds, of binascii among them
            raise AccessUnusable(f"{self._named('secret_file')} holds no nkey seed; it begins with SU") from error


class GuardedClient(Client):
    """nats-py's client that speaks to no server in the clear if TLS is wanted."""

    def __init__(self, *, tls_only: bool) -> None:
        super().__init__()
        self._tls_only = tls_only
        self.greeting: dict[str, Any] = {}
        """The INFO of the server that it talks to."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # Called with the greeting before anything of ours goes out: the last moment to keep the password back.
        self.greeting = self.greeting | info
        if initial_connection and self._tls_only and not info.get("tls_required"):
            name = info.get("server_name", "the server")
            raise AccessUnusable(
                f"{name} offers no TLS, and nats.url (tls://) or nats.ca_file wants it: configure tls {{}} there, or "
                "write nats://"
            )
        await super()._process_info(info, initial_connection)

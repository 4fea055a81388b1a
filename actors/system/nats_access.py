"""Getting into a NATS: TLS context, login, and the order in which servers are tried.

Everything that stands in a file is read when a connection is made, also one that is won back: whoever renews a
certificate or changes a password need not restart us. What nats-py leaves open is closed here: it would talk in the
clear to a server that offers no TLS, and it reads a .creds file without a JWT in an endless loop.
"""

import base64
import random
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import nats.errors
import nkeys as untyped_nkeys  # pyright: ignore[reportMissingTypeStubs]
from nats.aio.client import Client

from actors.system.nats_settings import BusSettings

_JWT = re.compile(rb"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(rb"-----BEGIN USER NKEY SEED-----\s+(\S+)\s+-+END USER NKEY SEED-+")


class AccessUnusable(nats.errors.Error):
    """A file that the settings name cannot be used; the text names setting, file and remedy. One of nats-py's errors,
    because it is raised inside its reconnection loop, which any other kind would end for good."""


class PlainServer(nats.errors.Error):
    """A server offers no TLS, and the settings want it."""


class NatsAccess(msgspec.Struct, frozen=True):
    """What a connection needs to know, whoever runs the server."""

    servers: tuple[str, ...]
    settings: BusSettings = BusSettings()
    user: str = ""
    password: str = ""
    """With `user`: the embedded broker's, which stands in its own file."""

    @classmethod
    def of(cls, settings: BusSettings) -> "NatsAccess":
        """Your own NATS."""
        return cls(settings.servers, settings, settings.user)

    def __repr__(self) -> str:
        # Without the password, wherever it is printed.
        return f"NatsAccess({','.join(self.servers)})"

    def secret(self, name: str) -> str:
        """The text in the file that setting `name` names."""
        text = _read(self.settings, name).decode(errors="replace").strip()
        if not text:
            raise AccessUnusable(f"{_named(self.settings, name)}: the file is empty; put the secret in")
        return text

    def tls(self) -> ssl.SSLContext:
        """A fresh context with the files as they are now."""
        settings = self.settings
        context = ssl.create_default_context()
        if settings.ca_file:
            _read(settings, "ca_file")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            _load(settings, "ca_file", lambda: context.load_verify_locations(settings.ca_file))
        return context

    def options(self) -> dict[str, Any]:
        """What nats-py's `connect` is told."""
        settings, told = self.settings, {"tls": self.tls()}
        if settings.password_file:
            self.secret("password_file")
            return told | {"user": settings.user, "password": lambda: self.secret("password_file")}
        if settings.credentials_file:
            self._credentials()
            return told | {
                "user_jwt_cb": lambda: bytearray(self._credentials()[0]),
                "signature_cb": self._signed,
            }
        if self.user:
            return told | {"user": self.user, "password": self.password}
        return told

    def _signed(self, nonce: str) -> bytes:
        pair = _pair(self.settings, "credentials_file", self._credentials()[1])
        return base64.b64encode(pair.sign(nonce.encode()))

    def _credentials(self) -> tuple[bytes, bytes]:
        """JWT and seed."""
        text = _read(self.settings, "credentials_file")
        jwt, seed = _JWT.search(text), _SEED.search(text)
        if jwt is None or seed is None:
            missing = "JWT" if jwt is None else "NKEY SEED"
            raise AccessUnusable(
                f"nats.secret_file = {self.settings.credentials_file} has no {missing} block; "
                "make the file anew, for example with `nsc generate creds`"
            )
        return jwt[1], seed[1]


class NatsConnection(Client):
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
            raise PlainServer(f"{info.get('server_name', 'the server')} offers no TLS")
        await super()._process_info(info, initial_connection)


class NextServer:
    """Which server is tried next, and after how long: the one that failed least, later and later, never all at once.

    Without jitter every process of an installation comes back in the same instant.
    """

    def __init__(self, first: float, longest: float, rng: random.Random) -> None:
        self._first, self._longest, self._rng = first, longest, rng

    def __call__(self, servers: Sequence[Any], greeting: object) -> tuple[Any, float]:
        least = min(server.reconnects for server in servers)
        server = self._rng.choice([server for server in servers if server.reconnects == least])
        wait = min(self._longest, self._first * 2.0 ** min(least, 16))
        return server, wait * self._rng.uniform(0.5, 1.0)


def _named(settings: BusSettings, name: str) -> str:
    return f"nats.{'ca_file' if name == 'ca_file' else 'secret_file'} = {getattr(settings, name)}"


def _read(settings: BusSettings, name: str) -> bytes:
    path = Path(getattr(settings, name))
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessUnusable(
            f"{_named(settings, name)} cannot be read: {error.strerror}; let this process's user read it, "
            "or name another file"
        ) from error


def _load(settings: BusSettings, name: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or str(error)
        raise AccessUnusable(f"{_named(settings, name)} cannot be used: {reason}; it must be PEM") from error


def _pair(settings: BusSettings, name: str, seed: bytes) -> Any:
    try:
        return cast(Any, untyped_nkeys).from_seed(bytearray(seed))
    except Exception as error:  # nkeys raises a dozen kinds, of binascii among them
        raise AccessUnusable(
            f"{_named(settings, name)} holds no nkey seed ({type(error).__name__}); it begins with SU"
        ) from None

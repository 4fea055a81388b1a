"""TLS of our own servers: certificates (`daemon.certificates`) that are checked before they are used.

[control] tls_cert, tls_key  ->  `ServerTls`  ->  the `ssl.SSLContext` that hypercorn accepts with
"""

import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from daemon.certificates import ServerCertificate
from daemon.errors import ConfigError

_PROTOCOLS = ("h2", "http/1.1")


class ServerTls(ServerCertificate):
    """A server's certificate and key, checked in all that can be wrong with them."""

    def __init__(self, cert: str, key: str, *, section: str, clock: Callable[[], float] = time.time) -> None:
        """
        Raises:
            ConfigError: a file that cannot be used: says which setting, which file, and what to do.
        """
        self._clock = clock
        self.expires = 0.0
        """Unix seconds, of the certificate in service."""
        super().__init__(cert, key, section=section, protocols=_PROTOCOLS, error=ConfigError)

    def _take(self) -> None:
        expires = self._checked()
        super()._take()
        self.expires = expires

    def _checked(self) -> float:
        """When the certificate expires, unix seconds."""
        cert_name, key_name = f"{self._section}.tls_cert {self._cert}", f"{self._section}.tls_key {self._key}"
        try:
            cert = x509.load_pem_x509_certificate(_content(self._cert, cert_name))
        except ValueError as error:
            raise ConfigError(f"{cert_name}: no certificate in PEM ({error})") from error
        content = _content(self._key, key_name)
        if self._key.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            raise ConfigError(f"{key_name}: others may read or write it; chmod 600 {self._key}")
        try:
            key = serialization.load_pem_private_key(content, password=None)
        except TypeError as error:
            raise ConfigError(
                f"{key_name}: it has a passphrase; a service cannot type one, store it without"
            ) from error
        except ValueError as error:
            raise ConfigError(f"{key_name}: no private key in PEM") from error
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        if key.public_key().public_bytes(*form) != cert.public_key().public_bytes(*form):
            raise ConfigError(f"{key_name}: is not the key of {cert_name}; give the two that were made together")
        now = self._clock()
        begins, ends = cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()
        if now >= ends:
            raise ConfigError(f"{cert_name}: expired at {_day(ends)}; renew it, or set this machine's clock")
        if now < begins:
            raise ConfigError(f"{cert_name}: not valid before {_day(begins)}; set this machine's clock, or wait")
        return ends


def server_tls(cert: str, key: str, *, section: str) -> ServerTls | None:
    """TLS as the settings of `section` say; None if they name no certificate.

    Raises:
        ConfigError: as `ServerTls`.
    """
    return ServerTls(cert, key, section=section) if cert or key else None


def _content(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}; it must be there, readable by whoever runs this") from error


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

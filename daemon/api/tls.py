"""TLS of our own servers: a certificate that is checked before it is used, and read again when its files change.

    [control] tls_cert, tls_key, tls_client_ca  ->  `ServerTls`  ->  the `ssl.SSLContext` that hypercorn accepts with

Renewing is replacing the files (certbot, cert-manager, systemd credentials all do): they are looked at every few
seconds, and new connections get the new certificate. One that cannot be used leaves the old one in service, and is
logged once. TLS 1.2 is the least that is spoken (RFC 9325).
"""

import ssl
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from daemon.errors import ConfigError

_PROTOCOLS = ("h2", "http/1.1")

log = structlog.get_logger(__name__)


class ServerTls:
    """A server's certificate and key, and whose clients it lets in.

    Attributes:
        context: accepts connections; stays the same object when the certificate changes.
        expires: unix seconds, of the certificate in service.
    """

    def __init__(
        self, cert: str, key: str, client_ca: str = "", *, section: str, clock: Callable[[], float] = time.time
    ) -> None:
        """
        Args:
            cert: PEM file, the server's certificate first, then those that lead to its authority.
            key: PEM file with its key, without a passphrase.
            client_ca: PEM file of authorities; clients must show a certificate of one of them. Empty: no need.
            section: of the settings, for errors.
            clock: unix seconds.

        Raises:
            ConfigError: a file that cannot be used: says which setting, which file, and what to do.
        """
        self._cert, self._key, self._section, self._clock = Path(cert), Path(key), section, clock
        if not cert or not key:
            raise ConfigError(f"{section}.tls_cert and {section}.tls_key belong together; set both or none")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(_PROTOCOLS)
        self._seen = self._stamp()
        self.expires = self._take()
        if client_ca:
            try:
                self.context.load_verify_locations(cafile=client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"{section}.tls_client_ca {client_ca}: {error}; give a PEM file of the authorities that sign the "
                    "clients' certificates"
                ) from error
            self.context.verify_mode = ssl.CERT_REQUIRED

    def refresh(self) -> None:
        """Take over changed files; what cannot be used changes nothing and is logged, once a change."""
        seen = self._stamp()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.expires = self._take()
        except ConfigError as error:
            log.error("tls_certificate_unusable", reason=str(error), still_in_service_until=_day(self.expires))
        else:
            log.info("tls_certificate_read", path=str(self._cert), expires=_day(self.expires))

    def _take(self) -> float:
        expires = self._checked()
        try:
            # On its own first: what fails half-way would leave the one in service with another's key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            self.context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{self._section}.tls_cert {self._cert}: {error}; give PEM files that match") from error
        return expires

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

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        found: list[tuple[int, int, int]] = []
        for path in (self._cert, self._key):
            try:
                seen = path.stat()
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)


def server_tls(cert: str, key: str, client_ca: str, *, section: str) -> ServerTls | None:
    """TLS as the settings of `section` say; None if they name no certificate.

    Raises:
        ConfigError: as `ServerTls`.
    """
    if not cert and not key:
        if client_ca:
            raise ConfigError(f"{section}.tls_client_ca: without {section}.tls_cert nobody is asked; set both or none")
        return None
    return ServerTls(cert, key, client_ca, section=section)


def _content(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}; it must be there, readable by whoever runs this") from error


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

"""A server's certificate in files, for tap and control API alike: new connections are shown one that was renewed.

Renewing is replacing the files (certbot, cert-manager, systemd credentials all do): they are looked at every few
seconds. One that cannot be used leaves the old one in service, and is logged once. TLS 1.2 is the least that is spoken
(RFC 9325).
"""

import contextlib
import ssl
from collections.abc import Sequence
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class ServerCertificate:
    """`context` accepts connections; it stays the same object when the certificate changes."""

    def __init__(self, cert: str, key: str, *, section: str, protocols: Sequence[str], error: type[Exception]) -> None:
        """PEM files, the key's without a passphrase; `error` is raised, naming the setting, if they cannot be used."""
        if not cert or not key:
            raise error(f"{section}.tls_cert and {section}.tls_key belong together; set both or none")
        self._cert, self._key, self._section, self._error = Path(cert), Path(key), section, error
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(protocols)
        self._seen = self._stamp()
        self._take()

    def refresh(self) -> None:
        """Take over changed files; what cannot be used changes nothing and is logged, once a change."""
        seen = self._stamp()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take()
        except self._error as error:
            log.error("tls_certificate_unusable", reason=str(error))
        else:
            log.info("tls_certificate_read", path=str(self._cert))

    def _take(self) -> None:
        try:
            # On its own first: what fails half-way would leave the one in service with another's key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            self.context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise self._error(f"{self._section}.tls_cert {self._cert}: {error}; give PEM files that match") from error

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        found: list[tuple[int, int, int]] = []
        for path in (self._cert, self._key):
            with contextlib.suppress(OSError):
                seen = path.stat()
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found)

"""What keeps a tap from keeping calls, or agents from trusting it: said when it starts."""

import os
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509

from daemon.settings.config import Config

_log = structlog.get_logger(__name__)


def complaints(config: Config) -> None:
    """Log it. The tap serves all the same: it is in the agents' way, and refusing to start would cost more than what is
    wrong."""
    try:
        config.spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = config.spool / f".probe.{os.getpid()}"
        try:
            probe.write_bytes(b"0")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        _log.error(
            "spool_unusable", path=str(config.spool), error=error.strerror, kept="nothing: calls pass uncopied",
            remedy="make it writable for who runs the tap, or set state_dir (tap.spool_dir) to another directory",
        )  # fmt: skip
    if config.tap.tls_cert:
        try:
            one = x509.load_pem_x509_certificates(Path(config.tap.tls_cert).read_bytes())[0]
        except (OSError, ValueError):
            return  # the tap says it, and ends
        if one.not_valid_after_utc < datetime.now(UTC):
            _log.error(
                "certificate_expired", setting="tap.tls_cert", path=config.tap.tls_cert,
                since=one.not_valid_after_utc.isoformat(), remedy="renew it there; it is read again",
            )  # fmt: skip

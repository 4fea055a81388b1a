"""What a process looks at before it starts its parts, so that a fault is one line and not a traceback of a part.

The tap only complains: it is in the way of agents' calls, and serves them also where nothing can be kept.
"""

import contextlib
import errno
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509

from daemon.errors import StartFailed
from daemon.settings.reading import address
from daemon.settings.tables import Config

_log = structlog.get_logger(__name__)


def state_directory(config: Config) -> None:
    """Make the state directory if need be, and see that something can be written in it. Raises StartFailed: it
    cannot; names the setting, the directory and the remedy."""
    state = config.state
    probe = state / f".probe.{os.getpid()}"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe.write_bytes(bytes(4096))
    except OSError as error:
        raise StartFailed(f"state_dir {state}: {error.strerror}; {_remedy(error, state)}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _remedy(error: OSError, state: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room on its disk, or set state_dir to another one"
    if error.errno == errno.EROFS:
        return "mount its file system for writing, or set state_dir to another one"
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENOENT):
        return "set state_dir to a directory"
    return f"give it to who runs evolved (chown -R evolved: {state}), or set state_dir to another one"


def port_free(listen: str, setting: str) -> None:
    """See that nobody listens there. Raises StartFailed: somebody does, or the address is not this machine's; names
    the setting."""
    host, port = address(listen, setting)
    if not port:
        return
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
    except OSError as error:
        raise StartFailed(
            f"{setting} = {listen!r}: {error.strerror}; `ss -ltnp` shows who listens there, {setting} takes another"
        ) from error


def daemon(config: Config) -> None:
    """All that `evolved run` needs before it opens its parts. Raises StartFailed, ConfigError: names the setting and
    the remedy."""
    state_directory(config)
    port_free(config.control.listen, "control.listen")
    if config.otlp.listen:
        port_free(config.otlp.listen, "otlp.listen")


def tap(config: Config) -> None:
    """Log what keeps the tap from keeping calls, or agents from trusting it: refusing to start would cost them more."""
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

"""The tap's SIGHUP: its settings are read again, and the tap gets what can change while it serves.

No connection is closed for it: deadlines and limits hold for what begins next, the door's rules for the next request,
and redaction for the next record, which goes to another recorder once the present one has written what it has.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import structlog
from cryptography import x509
from prometheus_client import CollectorRegistry

from daemon.composition.reloading import Reload, Reloading
from daemon.errors import DaemonError
from daemon.settings.config import Config, tap_redaction, tap_settings
from daemon.tap.errors import TapError
from daemon.tap.settings import TapSettings, check

_log = structlog.get_logger(__name__)
FIXED = (
    "host", "port", "unix_socket", "tls_cert", "tls_key", "mirror_port", "upstream", "engine", "upstreams",
    "upstream_ca", "health_seconds", "routes_file", "routes_seconds", "remembered_routes", "spool_dir", "admin_host",
    "admin_port", "mint_tool_call_ids", "upstream_idle_seconds", "max_feedback_bytes", "spool_segment_bytes",
    "spool_memory_bytes", "spool_disk_bytes", "spool_sync_seconds", "spool_tick_seconds", "scribe_seconds",
    "door.keys_file",
)  # fmt: skip
"""Settings of the tap that need a restart."""
_OTHERS = (
    "runtime", "seed", "broker", "bus", "store", "control", "sandbox", "judge", "embedder", "extractor",
    "rewriter", "live", "adapters", "intake", "shipper", "actors", "assembler", "attributor",
    "curator", "experiencer", "probe", "navigator", "questioner", "wording", "rollout", "tasks",
    "grader", "gate", "swapper", "sentinel", "learner", "provenance", "weights", "engines.shadow", "engines.serving",
)  # fmt: skip
"""Settings that are not the tap's affair."""


def complaints(config: Config) -> None:
    """Log what keeps the tap from keeping calls, or agents from trusting it. It serves all the same: it is in their
    way, and refusing to start would cost more than what is wrong."""
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
                since=one.not_valid_after_utc.isoformat(), remedy="renew it there; SIGHUP takes it over",
            )  # fmt: skip


class Reconfigured(Protocol):
    """The tap, as far as it is seen from here."""

    registry: CollectorRegistry

    def reconfigure(self, settings: TapSettings, redaction: dict[str, Any]) -> None:
        """Serve on with other settings, which were checked."""
        ...


class TapReloads:
    """Reads the settings again for a tap."""

    def __init__(
        self, config: Config, read: Callable[[], Config], mine: Callable[[TapSettings], TapSettings] = lambda all: all
    ) -> None:
        """
        Args:
            read: the settings of now.
            mine: of the tap's settings, this process's part, if it is one of several workers.
        """
        self._read_config, self._mine = read, mine
        self._reloading: Reloading[Config] = Reloading(
            config, self._read, errors=(DaemonError, TapError), ignores=_OTHERS
        )
        self._tap: Reconfigured | None = None
        for path, fixed in (("tap", FIXED), ("redaction", ())):
            self._reloading.part(path, _both_at_once, but=fixed)

    @property
    def last(self) -> Reload:
        """How the last one went."""
        return self._reloading.last

    def serve(self, tap: Reconfigured) -> None:
        """This is the tap; its metrics tell of reloads from now on."""
        self._tap = tap
        self._reloading.register(tap.registry)

    def now(self) -> str:
        """Reload; a line for people about how it went."""
        told = self._reloading.now()
        if self._tap is not None and not self.last.error:
            # Also if no setting changed: a certificate may have been renewed under the name that it had.
            running = self._reloading.running
            self._tap.reconfigure(self._mine(tap_settings(running)), tap_redaction(running))
        return told

    def _read(self) -> Config:
        config = self._read_config()
        check(tap_settings(config))
        tap_redaction(config)
        return config


def _both_at_once(section: object) -> None:
    """The tap gets its sections together, in `TapReloads.now`."""

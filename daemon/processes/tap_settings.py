"""What the tap takes of the settings, and what is redacted before anything is on disk."""

import contextlib
from pathlib import Path
from urllib.parse import urlsplit

from adapters.redaction import InvalidRedaction, PatternSettings, RedactionSettings, Redactor
from daemon.errors import ConfigError
from daemon.settings.reading import address, nats_servers
from daemon.settings.tables import Config, there
from daemon.tap.admission import DoorSettings
from daemon.tap.settings import TapSettings, UpstreamSettings

ROUTES = Path("routes.json")
"""Below state_dir: what the daemon tells the tap of several engines."""


def tap(config: Config, number: int | None = None) -> TapSettings:
    """`number` is of one of several taps of this machine; none: the first that is free."""
    tap, limits = config.tap, config.limits
    host, port = address(tap.listen, "tap.listen")
    admin_host, admin_port = address(tap.admin, "tap.admin")
    mirror_host, mirror_port = address(tap.mirror, "tap.mirror") if tap.mirror else ("", None)
    upstreams = tuple(UpstreamSettings(url=one.url, name=one.name, weight=one.weight) for one in config.engines)
    return TapSettings(
        host=host, port=port, tls_cert=tap.tls_cert, tls_key=tap.tls_key,
        mirror_host=mirror_host, mirror_port=mirror_port,
        upstreams=upstreams, upstream_ca=config.engines[0].ca_file,
        routes_file=str(config.state / ROUTES), spool_dir=str(config.spool), number=number,
        admin_host=admin_host, admin_port=admin_port, named_ports=_named_ports(config),
        capture_tokens=tap.capture_tokens,
        first_byte_seconds=limits.first_answer_seconds, drain_seconds=limits.drain_seconds,
        max_body_bytes=limits.request_mb << 20, spool_disk_bytes=int(limits.spool_gb * (1 << 30)),
        door=DoorSettings(
            keys_file=str(config.keys or ""), require_key=tap.require_key,
            sampling={name: one.share for name, one in config.tenants.items()},
        ),
    )  # fmt: skip


def _named_ports(config: Config) -> frozenset[int]:
    """Every port that the settings name, whosoever it is."""
    listens = (
        config.control.listen, config.tap.listen, config.tap.admin, config.tap.mirror, config.otlp.listen,
        config.weights.listen, config.train.metrics,
    )  # fmt: skip
    found = {address(text, "listen")[1] for text in listens if text}
    for url in (*(one.url for one in config.engines), config.shadow.url, *nats_servers(config.nats.url)):
        with contextlib.suppress(ValueError):  # whose URL it is says what is wrong with it
            found.add(urlsplit(url).port or 0)
    return frozenset(found)


def redaction(config: Config) -> RedactionSettings:
    """Raises ConfigError: it cannot work; better said here than by a scribe that dies over it."""
    redact, key = config.redact, config.state / "keys" / "placeholders.key"
    settings = RedactionSettings(
        strict=strict(config),
        kinds=tuple(kind for kind in redact.kinds if kind != "text"),
        patterns=tuple(PatternSettings(name=one.name, regex=one.regex) for one in redact.patterns),
        allow=tuple(redact.allow),
        key_file=str(key) if there(key) else "",
    )
    try:
        Redactor(settings)
    except InvalidRedaction as error:
        raise ConfigError(str(error)) from error
    return settings


def strict(config: Config) -> bool:
    """Whether all text goes, and nothing is trained on."""
    return "text" in config.redact.kinds

"""Settings of the tap, with the defaults for production."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from daemon.certificates import ServerCertificate
from daemon.tap.admission import DoorSettings
from daemon.tap.errors import InvalidTapSettings


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An engine behind the tap."""

    url: str
    """http://HOST:PORT or https://HOST[:PORT], without /v1."""
    name: str = "serving"
    """In records."""
    weight: float = 1.0
    """Its share of new trajectories, relative to the others'; 0 takes none."""

    @property
    def address(self) -> "Address":
        """
        Raises:
            InvalidTapSettings: `url` is none that it can have.
        """
        try:
            url = urlsplit(self.url)
            port = url.port
        except ValueError as error:
            raise InvalidTapSettings(f"engines {self.name!r} {self.url!r}: {error}") from error
        if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or url.query or url.username:
            raise InvalidTapSettings(
                f"engines {self.name!r} {self.url!r}: write http://HOST:PORT or https://HOST, without a path and "
                "without credentials"
            )
        tls = url.scheme == "https"
        return Address(url.hostname, port or (443 if tls else 80), tls)


class TapSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tap listens and asks, and what it may take of time and room."""

    host: str = "127.0.0.1"
    """Address that agents connect to."""
    port: int = 8080
    """0 takes a free one."""
    tls_cert: str = ""
    """PEM file with the certificate chain shown to agents; empty: plain HTTP. Read again when it changes."""
    tls_key: str = ""
    """PEM file with its key."""
    mirror_host: str = "127.0.0.1"
    mirror_port: int | None = None
    """Takes copies of requests from a proxy that mirrors them (see ops/nginx) and answers 204 at once;
    none: no such port. 0 takes a free one."""
    upstreams: tuple[UpstreamSettings, ...]
    """The engines; of several, the calls of a trajectory stay with one."""
    upstream_ca: str = ""
    """PEM file of the authorities that https upstreams are checked against; empty: the system's."""
    routes_file: str = "routes.json"
    """With several engines: what the daemon says of them, in `state_dir`: the canary and its share of new trajectories,
    and which are about to be paused. The tap needs no restart for it."""
    spool_dir: str = "spool"
    """Directory of the write-ahead spool, with one below it for each tap of this machine."""
    number: int | None = None
    """Which of them this is; none: the first that is free."""
    admin_host: str = "127.0.0.1"
    """Address of the tap's own /metrics and /healthz."""
    admin_port: int = 8081
    """Of tap 0; the others take the next ones. 0 takes a free one."""
    named_ports: frozenset[int] = frozenset()
    """Ports that the settings name for something else."""
    capture_tokens: bool = True
    """Ask the engine for log-probs, token ids and weight versions where the agent did not, and hide them from it."""

    first_byte_seconds: float = 900.0
    """Until the engine's first byte. Generous: a plain completion sends nothing before its end, and a swap holds
    requests back."""
    drain_seconds: float = 30.0
    """After SIGTERM, what is still running then is cut off."""

    max_connections: int = 4096
    max_body_bytes: int = 64 << 20
    """Of a request."""

    spool_memory_bytes: int = 128 << 20
    """Records that wait for the disk; what comes beyond is shed and counted."""
    spool_disk_bytes: int = 8 << 30
    """Quota of the spools of all taps; what comes beyond is shed and counted."""

    door: DoorSettings = DoorSettings()
    """Who may come in, and what is kept of them."""


class Address(msgspec.Struct, frozen=True):
    """Where an engine listens."""

    host: str
    port: int
    tls: bool = False


def agents_tls(settings: TapSettings) -> ServerCertificate | None:
    """TLS towards agents; none if no certificate is set."""
    if not settings.tls_cert and not settings.tls_key:
        return None
    return ServerCertificate(
        settings.tls_cert, settings.tls_key, section="tap", protocols=["http/1.1"], error=InvalidTapSettings
    )


def engines_tls(settings: TapSettings) -> ssl.SSLContext:
    """TLS towards https upstreams: certificate and host name are checked."""
    path = settings.upstream_ca
    if path and not Path(path).is_file():
        raise InvalidTapSettings(f"engines.ca_file {path!r}: no such file; give a PEM file of authorities")
    try:
        context = ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidTapSettings(f"engines.ca_file {path!r}: {error}; give a PEM file of authorities") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context

"""Settings of the tap, with the defaults for production."""

from urllib.parse import urlsplit

import msgspec

from daemon.tap.errors import InvalidTapSettings

NEVER_CAPTURED = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "api-key", "x-api-key", "x-goog-api-key"}
)
"""Headers that carry keys. No setting brings them into a record."""


class TapSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tap]` in config.toml."""

    host: str = "127.0.0.1"
    """Address that agents connect to."""
    port: int = 8080
    """0 takes a free one."""
    upstream: str = "http://127.0.0.1:8000"
    """The engine, without /v1."""
    engine: str = "serving"
    """The engine's name in records."""
    spool_dir: str = "spool"
    """Directory of the write-ahead spool; one tap process each."""
    admin_host: str = "127.0.0.1"
    """Address of the tap's own /metrics and /healthz."""
    admin_port: int = 8081
    """0 takes a free one."""
    capture_tokens: bool = True
    """Ask the engine for log-probs, token ids and weight versions where the agent did not."""
    capture_headers: tuple[str, ...] = (
        "content-type", "user-agent", "x-request-id", "traceparent", "x-evolved-trajectory", "x-evolved-tenant",
    )  # fmt: skip
    """Request headers that are kept with a call. Those that carry keys never are."""

    connect_seconds: float = 5.0
    """Until the engine's socket accepts."""
    first_byte_seconds: float = 900.0
    """Until the engine's first byte. Generous: a plain completion sends nothing before its end, and a swap holds
    requests back."""
    idle_seconds: float = 300.0
    """Between two pieces of a response, also when it is the agent that does not read."""
    request_seconds: float = 120.0
    """From a request's first byte to its last."""
    keep_alive_seconds: float = 300.0
    """How long an agent's idle connection is kept."""
    upstream_idle_seconds: float = 4.0
    """How long an idle connection to the engine is kept; uvicorn, and so vLLM, closes after 5."""
    drain_seconds: float = 30.0
    """After SIGTERM, what is still running then is cut off."""

    max_connections: int = 4096
    max_header_bytes: int = 65_536
    max_body_bytes: int = 64 << 20
    """Of a request; it is held in memory as a whole."""
    max_capture_bytes: int = 16 << 20
    """Of a response in a record. A larger one passes all the same; its record comes without it."""
    max_feedback_bytes: int = 262_144

    spool_segment_bytes: int = 64 << 20
    spool_memory_bytes: int = 128 << 20
    """Records that wait for the disk; what comes beyond is shed and counted."""
    spool_disk_bytes: int = 8 << 30
    """Quota of the spool directory; what comes beyond is shed and counted."""
    spool_sync_seconds: float = 0.1
    """At most this often to stable storage: a power failure loses no more than that."""
    spool_tick_seconds: float = 0.02
    """How often waiting records are written: a kill -9 of the tap loses no more than that."""


def upstream_address(settings: TapSettings) -> tuple[str, int]:
    """Host and port of the engine.

    Raises:
        InvalidTapSettings: the URL cannot be used.
    """
    try:
        url = urlsplit(settings.upstream)
        port = url.port or 80
    except ValueError as error:
        raise InvalidTapSettings(f"tap.upstream {settings.upstream!r}: {error}") from error
    if url.scheme != "http" or not url.hostname or url.path.strip("/") or url.query or url.username:
        raise InvalidTapSettings(
            f"tap.upstream {settings.upstream!r}: write http://HOST:PORT, without a path and without credentials"
        )
    return url.hostname, port


def captured_headers(settings: TapSettings) -> frozenset[bytes]:
    """Names, in lower case, of the request headers to keep.

    Raises:
        InvalidTapSettings: one of them carries keys.
    """
    names = {name.lower() for name in settings.capture_headers}
    if secret := sorted(names & NEVER_CAPTURED):
        raise InvalidTapSettings(f"tap.capture_headers: {secret[0]} carries keys and is never captured; leave it out")
    return frozenset(name.encode("latin-1", "replace") for name in names)

"""What a NATS server says of itself on its monitoring port: how often it writes to disk.

A client is not told: neither the greeting (INFO) nor `$JS.API.INFO` has it, and `$SYS.REQ.SERVER.PING.JSZ` is for users
of the system account. `GET /jsz` on the monitoring port has it, for the one server that is asked. Our own broker has no
monitoring port; it does as `broker.sync_interval` says.
"""

import httpx
import msgspec

_SECONDS = 3.0


class SyncPolicy(msgspec.Struct, frozen=True):
    """When a server's JetStream store is on disk."""

    always: bool
    """Before each confirmation."""
    seconds: float
    """Between two writes, if not always: what was confirmed since is lost if the machine loses power."""


class MonitoringUnavailable(Exception):
    """Nobody answers there, or nobody with JetStream; the text says which."""


class _Config(msgspec.Struct):
    sync_interval: int = 120_000_000_000
    """Nanoseconds."""
    sync_always: bool = False


class _Jsz(msgspec.Struct):
    config: _Config | None = None


async def sync_policy(monitor_url: str) -> SyncPolicy:
    """The policy of the server whose monitoring port is at `monitor_url`, such as http://host:8222.

    Raises:
        MonitoringUnavailable: see there.
    """
    try:
        async with httpx.AsyncClient(timeout=_SECONDS) as client:
            answer = await client.get(f"{monitor_url.rstrip('/')}/jsz")
            answer.raise_for_status()
            told = msgspec.json.decode(answer.content, type=_Jsz).config
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
        raise MonitoringUnavailable(
            f"bus.monitor_url = {monitor_url} does not answer as a NATS server's monitoring port: {error}; "
            "set http_port there and name it here"
        ) from error
    if told is None:
        raise MonitoringUnavailable(f"the server at bus.monitor_url = {monitor_url} has no JetStream")
    return SyncPolicy(told.sync_always, told.sync_interval / 1e9)

"""Connecting a process to the bus: our own broker by its credentials file, or a NATS that the settings name."""

import os
import platform

import anyio
import structlog

from actors.system import runtime
from actors.system.broker import read_credentials
from actors.system.errors import BrokerFailed, BusMisconfigured, BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.nats_access import NatsAccess
from actors.system.nats_bus import NatsBus
from actors.system.nats_client import NatsSettings
from actors.system.nats_settings import BusSettings
from daemon.errors import StartFailed
from daemon.settings.reading import nats_servers
from daemon.settings.tables import Config, Nats

log = structlog.get_logger(__name__)


async def open_bus(
    config: Config, host: runtime.Host, name: str, seconds: float = 90.0, *, metrics: SystemMetrics | None = None
) -> NatsBus:
    """The bus of this process, connected.

    Args:
        name: of the process; the servers' monitoring shows it with host and process id.
        metrics: counts what the connection goes through.

    Raises:
        StartFailed: no broker within `seconds`; names the address and how to start one. At once, if your own NATS
            refuses us for a reason that waiting does not cure; names the setting and the remedy.
    """
    end = anyio.current_time() + seconds
    reason = ""
    while True:
        bus: NatsBus | None = None
        try:
            bus = _bus(config, host, name, metrics, NatsSettings(connect_seconds=min(10.0, max(1.0, seconds))))
            await bus.open()
            return bus
        except (BusUnavailable, BrokerFailed, BusMisconfigured) as error:
            if bus is not None:
                await bus.aclose()
            if isinstance(error, BusMisconfigured) and config.nats.url:
                raise StartFailed(str(error)) from error
            # Our own broker writes its credentials anew when it starts: a refusal may be of the life before.
            if anyio.current_time() > end:
                if isinstance(error, BusMisconfigured):
                    raise StartFailed(str(error)) from error
                where, remedy = config.nats.url, "start it, or correct nats.url"
                if not where:
                    where, remedy = str(config.state / "broker"), "start it with `evolved broker`"
                raise StartFailed(f"no broker at {where}: {error}; {remedy}") from error
            if str(error) != reason:
                reason = str(error)
                log.info("bus.waiting", reason=reason)
            await anyio.sleep(0.5)


def bus_settings(nats: Nats) -> BusSettings:
    """With a user in the address, nats://USER@HOST, the secret is his password; else it is a .creds file."""
    servers = nats_servers(nats.url)
    user = servers[0].partition("://")[2].rpartition("@")[0] if servers else ""
    return BusSettings(
        url=",".join(server.replace(f"://{user}@", "://", 1) for server in servers), user=user, ca_file=nats.ca_file,
        replicas=nats.replicas, password_file=nats.secret_file if user else "",
        credentials_file="" if user else nats.secret_file,
    )  # fmt: skip


def _bus(
    config: Config, host: runtime.Host, name: str, metrics: SystemMetrics | None, settings: NatsSettings
) -> NatsBus:
    if config.nats.url:
        access = NatsAccess.of(bus_settings(config.nats))
    else:
        own = read_credentials(config.state / "broker" / "credentials.json")
        access = NatsAccess((own.url,), bus_settings(config.nats), own.user, own.password)
    shown = f"evolved-{name} {platform.node()}:{os.getpid()}"
    return NatsBus(host, access, claims=config.state / "claims", name=shown, metrics=metrics, settings=settings)

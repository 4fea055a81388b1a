"""Connecting a process to the bus: our own broker by its credentials file, or a NATS that the settings name."""

import os
import platform

import anyio
import structlog

from actors.system import runtime
from actors.system.access import Access
from actors.system.broker import read_credentials
from actors.system.bus import Bus
from actors.system.errors import BrokerFailed, BusMisconfigured, BusUnavailable
from actors.system.metrics import SystemMetrics
from daemon.errors import StartFailed
from daemon.settings.reading import nats_servers
from daemon.settings.tables import Config

log = structlog.get_logger(__name__)


async def open_bus(
    config: Config, host: runtime.Host, name: str, seconds: float = 90.0, *, metrics: SystemMetrics | None = None
) -> Bus:
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
        bus: Bus | None = None
        try:
            shown = f"evolved-{name} {platform.node()}:{os.getpid()}"
            bus = Bus(host, access(config), claims=config.state / "claims", name=shown, metrics=metrics)
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


def access(config: Config) -> Access:
    """How this process gets in; with a user in the address, nats://USER@HOST, the secret is his password.

    Raises:
        BrokerFailed: our own broker has never been started.
    """
    nats = config.nats
    servers = nats_servers(nats.url)
    if not servers:
        own = read_credentials(config.state / "broker" / "credentials.json")
        return Access(servers=(own.url,), user=own.user, password=own.password, replicas=nats.replicas)
    user = servers[0].partition("://")[2].rpartition("@")[0]
    bare = tuple(server.replace(f"://{user}@", "://", 1) for server in servers)
    return Access(servers=bare, user=user, secret_file=nats.secret_file, ca_file=nats.ca_file, replicas=nats.replicas)

"""Connecting a process to the bus: our own broker by its credentials file, or a NATS that the settings name."""

from pathlib import Path

import anyio
import structlog

from actors.system import runtime
from actors.system.broker import read_credentials
from actors.system.errors import BrokerFailed, BusUnavailable
from actors.system.nats_bus import NatsBus
from daemon.config import Config
from daemon.errors import ConfigError, StartFailed

log = structlog.get_logger(__name__)


async def open_bus(config: Config, host: runtime.Host, name: str, seconds: float = 90.0) -> NatsBus:
    """The bus of this process, connected.

    Raises:
        StartFailed: no broker within `seconds`; names the address and how to start one.
    """
    end = anyio.current_time() + seconds
    while True:
        try:
            bus = _bus(config, host, name)
            await bus.open()
            return bus
        except (BusUnavailable, BrokerFailed) as error:
            if anyio.current_time() > end:
                where = config.bus.url or config.state / "broker"
                raise StartFailed(f"no broker at {where}: {error}; start it with `evolved broker`") from error
            log.info("bus.waiting", reason=str(error))
            await anyio.sleep(0.5)


def _bus(config: Config, host: runtime.Host, name: str) -> NatsBus:
    claims = config.state / "claims"
    if config.bus.url:
        password = _password(config.bus.password_file)
        return NatsBus(host, config.bus.url, claims=claims, user=config.bus.user, password=password, name=name)
    own = read_credentials(config.state / "broker" / "credentials.json")
    return NatsBus(host, own.url, claims=claims, user=own.user, password=own.password, name=name)


def _password(file: str) -> str:
    """
    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"bus.password_file {file}: {getattr(error, 'strerror', None) or 'no text'}; give a file that the "
            "service's user can read and that holds the password alone"
        ) from error

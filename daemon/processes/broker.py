"""`evolved broker`: nats-server, for machines without a NATS of their own."""

from typing import NoReturn

from actors.system.broker import become
from actors.system.errors import BrokerFailed
from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.settings.tables import Config


def main(config: Config) -> NoReturn:
    """Become the server. Raises StartFailed: another broker runs here, or its port is taken."""
    preflight.state_directory(config)
    try:
        become(config.state / "broker", store_bytes=int(config.limits.streams_gb * (1 << 30)))
    except BrokerFailed as error:
        raise StartFailed(str(error)) from error

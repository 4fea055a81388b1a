"""`evolved broker`: nats-server as a supervised child, for machines without a NATS of their own."""

import os
import random

import anyio

from actors.system.broker import Broker
from actors.system.errors import BrokerFailed, Escalated
from actors.system.lifecycle import Restart
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.settings.tables import Config


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status. Raises StartFailed: another broker runs here, or nats-server does not stay
    up."""

    preflight.state_directory(config)

    async def serve() -> int:
        broker = Broker(config.state / "broker", store_bytes=int(config.limits.streams_gb * (1 << 30)))
        try:
            await broker.take_over()
        except BrokerFailed as error:
            raise StartFailed(str(error)) from error
        supervisor = Supervisor(rng=random.Random(), notify=Notify.from_environment(os.environ))
        supervisor.add("broker", broker.serve, Restart(max_delay=2.0))
        try:
            return 0 if await supervisor.run() else 1
        except Escalated as error:
            raise StartFailed(f"{error.__cause__ or error}; its files are in {config.state / 'broker'}") from error

    return anyio.run(serve)

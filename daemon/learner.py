"""`evolved learner`: the trainer as a process of its own. Imports torch; nothing of the daemon runs in it."""

import os
import random
import time
from functools import partial

from prometheus_client import CollectorRegistry

from actors.system import runtime
from actors.system.errors import Escalated
from actors.system.life import Life, Restart
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.config import Config
from daemon.connect import open_bus
from daemon.errors import StartFailed
from learner.service import run


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status.

    Raises:
        StartFailed: no broker, no warm start, or an error that comes back each time.
    """
    return runtime.run(partial(_serve, config), backend=config.runtime)


async def _serve(config: Config, host: runtime.Host) -> int:
    bus = await open_bus(config, host, "learner")
    supervisor = Supervisor(rng=random.Random(), notify=Notify.from_environment(os.environ), drain_seconds=30.0)

    async def learn(life: Life) -> None:
        await run(config.learner, bus=bus, clock=time.time, state=config.state, life=life, registry=CollectorRegistry())

    supervisor.add("learner", learn, Restart(stall_seconds=3600.0, max_restarts=3))
    try:
        return 0 if await supervisor.run() else 1
    except Escalated as error:
        raise StartFailed(f"the learner keeps failing: {error.__cause__ or error}") from error
    finally:
        await bus.aclose()

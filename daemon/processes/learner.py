"""`evolved learner`: the trainer as a process of its own. Imports torch; nothing of the daemon runs in it.

Under torchrun every rank comes through here: rank 0 serves, the others follow it.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
from prometheus_client import CollectorRegistry

from actors.system import runtime
from actors.system.errors import Escalated
from actors.system.lifecycle import Lifecycle
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.errors import StartFailed
from daemon.figures import register_host
from daemon.processes import preflight
from daemon.processes.asgi import serve
from daemon.processes.bus_connection import open_bus
from daemon.processes.learner_settings import learner
from daemon.settings.reading import address
from daemon.settings.tables import Config
from daemon.upkeep.provenance import Provenance
from daemon.upkeep.weights import server
from learner import fit
from learner.errors import TrainerUnavailable
from learner.service import run
from learner.trainers import Trainer

MakeTrainer = Callable[[Path, Path], Trainer]


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status. Raises StartFailed: no broker, no warm start, no verl where the settings
    name it, or an error that keeps coming back; MemoryTooSmall: an update takes more than there is; nothing was
    loaded."""
    preflight.state_directory(config)
    settings = learner(config)
    if int(os.environ.get("RANK", "0")) == 0:
        fit.check(settings, config.state)
    if settings.trainer != "verl":
        return runtime.run(partial(_serve, config, None))
    from learner.trainers.verl import ranks

    try:
        if ranks.is_follower():
            return ranks.follow(settings)
        leader = ranks.Leader(settings)
    except TrainerUnavailable as error:
        raise StartFailed(str(error)) from error
    try:
        return runtime.run(partial(_serve, config, leader.open))
    finally:
        leader.stop()


async def _serve(config: Config, make_trainer: MakeTrainer | None, host: runtime.Host) -> int:
    provenance = Provenance(config.state)
    key, trusted = provenance.key("learner"), provenance.trusted("learner")
    bus = await open_bus(config, host, "learner")
    supervisor = Supervisor(rng=random.Random(), notify=Notify.from_environment(os.environ), drain_seconds=30.0)

    async def learn(lifecycle: Lifecycle) -> None:
        registry = CollectorRegistry()  # of each attempt: a second one's metrics have the names of the first's
        register_host(registry, config.state)
        await run(
            learner(config),
            bus=bus,
            clock=time.time,
            state=config.state,
            lifecycle=lifecycle,
            key=key,
            trusted=trusted,
            registry=registry,
            make_trainer=make_trainer,
        )

    if config.weights.listen:
        at, port = address(config.weights.listen, "weights.listen")
        app = server(at, config.weights.token_file, config.state / "versions")

        async def give(lifecycle: Lifecycle) -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(serve, app, at, port, ready=lifecycle.ready))
                while await lifecycle.pause(30.0):
                    lifecycle.beat()
                group.cancel_scope.cancel()

        supervisor.add("weights", give)
    supervisor.add("learner", learn, stall_seconds=3600.0, max_restarts=3)
    try:
        return 0 if await supervisor.run() else 1
    except Escalated as error:
        raise StartFailed(f"the learner keeps failing: {error.__cause__ or error}") from error
    finally:
        await bus.aclose()

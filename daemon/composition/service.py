"""`evolved run`: the daemon. Builds every part from the settings, gives them to the supervisor, and ends with it.

trio runs as a guest on the asyncio loop that nats-py lives on; the actors, the shipper, the control API and the metrics
are supervised tasks of one process. It holds no weights and no torch.
"""

import os
import random
from contextlib import AsyncExitStack
from functools import partial

from actors.kinds.kinds import Kinds
from actors.system import runtime
from actors.system.errors import Escalated
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.composition.api import api
from daemon.composition.capture import capture
from daemon.composition.credit import credit
from daemon.composition.curation import curation
from daemon.composition.deployment import deployment, swap_runner
from daemon.composition.environments import sandbox_environment
from daemon.composition.experience import experience, meanings
from daemon.composition.gate import gate
from daemon.composition.live import live_apis
from daemon.composition.monitoring import monitoring
from daemon.composition.questioner import questions
from daemon.composition.resources import Resources
from daemon.composition.rollout import rollout
from daemon.composition.toolsearch import searching
from daemon.composition.trajectories import trajectories
from daemon.composition.upkeep import upkeep
from daemon.composition.wiring import Wiring
from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.processes.state_lock import state_lock
from daemon.settings.config import Config


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status (1: cut off at the drain deadline)."""
    return runtime.run(partial(_serve, config))


async def _serve(config: Config, host: runtime.Host) -> int:
    preflight.daemon(config)
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(config.state))
        parts = await Resources.open(config, host, stack)
        supervisor = build(config, parts)
        try:
            return 0 if await supervisor.run() else 1
        except Escalated as error:
            raise StartFailed(f"{error.name} keeps failing: {error.__cause__ or error}") from error


def build(config: Config, parts: Resources) -> Supervisor:
    """The supervisor with every task of the daemon.

    Subsystems in the order in which a call comes through them. That is for the reader: tasks start together, and each
    waits for what it needs.
    """
    supervisor = Supervisor(rng=random.Random(), notify=Notify.from_environment(os.environ))
    wiring = Wiring(config, parts, supervisor)

    # Shared by several subsystems: where episodes are played, what finds texts, what is played next, what is alike.
    live, grader = live_apis(wiring), parts.adapter("grader", config.grader)
    sandbox = parts.closing(sandbox_environment(config.sandbox, parts.registry, live.sandbox_tools, grader))
    embedder, curriculum = parts.adapter("embedder", config.embedder), config.curator.curriculum()
    kinds = Kinds(meanings(wiring, embedder))
    environment = searching(sandbox, config.sandbox, embedder)

    # Calls are linked into trajectories, whose steps get credit; lessons are drawn from them, and batches picked.
    capture(wiring)
    trajectories(wiring)
    attributor = credit(wiring)
    navigator = experience(wiring, environment, embedder, kinds)
    curator = curation(wiring, curriculum, kinds)

    # The learner, a process of its own, gets the batches over the bus, and announces candidates there.

    # The sandbox is played with the newest of them, and the gate compares it with what serves.
    play = rollout(wiring, environment, grader, navigator, curriculum, lambda version: curator.pool.trains(version))
    questions(wiring, sandbox, embedder)
    swaps = swap_runner(wiring)
    gatekeeper = gate(wiring, environment, swaps, play.loaded)

    # What it promotes is brought in and watched; the next calls are its own.
    deployed = deployment(wiring, swaps, kinds)
    monitored = monitoring(wiring, curator, gatekeeper, deployed, kinds)

    forgetter = upkeep(wiring)
    api(
        wiring, attributor=attributor, navigator=navigator, curator=curator, deployed=deployed, monitored=monitored,
        forgetter=forgetter, routes=[*live.routes(), *play.routes],
    )  # fmt: skip
    return supervisor

"""`evolved run`: the daemon. Builds every part from the settings, gives them to the supervisor, and ends with it.

trio runs as a guest on the asyncio loop that nats-py lives on; the actors, the shipper, the control API and the metrics
are supervised tasks of one process. It holds no weights and no torch.
"""

import os
from contextlib import AsyncExitStack
from functools import partial

from actors.system import runtime
from actors.system.errors import Escalated
from actors.system.notify import Notify
from daemon.api.waiting import Waiting
from daemon.composition.capture import capture
from daemon.composition.daemon import Daemon
from daemon.composition.lead import leads
from daemon.composition.resources import Resources
from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.processes.state_lock import state_lock
from daemon.settings.tables import Config
from daemon.upkeep.restore import rewind


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status (1: cut off at the drain deadline)."""
    return runtime.run(partial(_serve, config))


async def _serve(config: Config, host: runtime.Host) -> int:
    preflight.daemon(config)
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(config.state))
        parts = Resources(config, stack)
        await parts.open(host)
        meanwhile, notify = capture(config, parts), Notify.from_environment(os.environ)
        if not await leads(parts.lead, Waiting(parts.registry), parts.listener, meanwhile, notify):
            return 0
        await rewind(parts.store, parts.bus)
        try:
            return 0 if await Daemon(config, parts, meanwhile, notify).supervisor.run() else 1
        except Escalated as error:
            raise StartFailed(f"{error.name} keeps failing: {error.__cause__ or error}") from error

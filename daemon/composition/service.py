"""`evolved run`: the daemon. Builds every part from the settings, gives them to the supervisor, and ends with it.

trio runs as a guest on the asyncio loop that nats-py lives on; the actors, the shipper, the control API and the metrics
are supervised tasks of one process. It holds no weights and no torch.
"""

from contextlib import AsyncExitStack
from functools import partial

from actors.system import runtime
from actors.system.errors import Escalated
from daemon.composition.daemon import Daemon
from daemon.composition.resources import Resources
from daemon.errors import StartFailed
from daemon.processes import preflight
from daemon.processes.state_lock import state_lock
from daemon.settings.tables import Config


def main(config: Config) -> int:
    """Run until SIGTERM; the exit status (1: cut off at the drain deadline)."""
    return runtime.run(partial(_serve, config))


async def _serve(config: Config, host: runtime.Host) -> int:
    preflight.daemon(config)
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(config.state))
        parts = await Resources.open(config, host, stack)
        try:
            return 0 if await Daemon(config, parts).supervisor.run() else 1
        except Escalated as error:
            raise StartFailed(f"{error.name} keeps failing: {error.__cause__ or error}") from error

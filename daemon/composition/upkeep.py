"""Upkeep in the daemon: what is forgotten, by order and by age."""

import time
from functools import partial

import anyio
import structlog

from actors.experience.forgetting import forget
from actors.system.lifecycle import Lifecycle, Restart
from daemon.composition.resources import Resources
from daemon.composition.wiring import Wiring
from daemon.experience.forgetting import Forgetter
from daemon.upkeep.retention import Retention, RetentionCollector, database_file

log = structlog.get_logger(__name__)
_REMEMBERED_SECONDS = 31 * 86_400.0
"""Marks of handled records are kept for longer than any stream keeps a record (30 days): it could still come again."""
_HOUSEKEEPING_SECONDS = 3600.0


def upkeep(wiring: Wiring) -> Forgetter:
    """Housekeeping every hour; the forgetter takes orders besides."""
    config, parts = wiring.config, wiring.parts
    forgetter = Forgetter(
        store=parts.store, lessons=forget, memory=config.state / "learner", renew=wiring.invalidation.ask,
        clock=wiring.clock,
    )  # fmt: skip
    retention = Retention(
        config.retention, store=parts.store, state=config.state, database=database_file(config.store_url),
        clock=wiring.clock,
    )  # fmt: skip
    RetentionCollector(retention).register(wiring.singletons)
    wiring.supervisor.add(
        "housekeeping",
        wiring.leadership.holds(partial(_housekeeping, parts, forgetter, retention)),
        Restart(critical=False, stall_seconds=3600.0),
    )
    return forgetter


async def _housekeeping(parts: Resources, forgetter: Forgetter, retention: Retention, lifecycle: Lifecycle) -> None:
    """Every hour, forget what no stream can bring back: marks and sent outputs in the store, payloads of the bus."""
    lifecycle.ready()
    await forgetter.resume()
    while not lifecycle.draining.is_set():
        forgotten = await parts.store.prune(time.time() - _REMEMBERED_SECONDS)
        swept = await parts.bus.sweep_claims(time.time())
        log.info("housekeeping", rows=forgotten, claims=swept)
        await retention.round(lifecycle.draining.is_set, lifecycle.beat)
        woken = anyio.current_time() + _HOUSEKEEPING_SECONDS
        while anyio.current_time() < woken and await lifecycle.pause(30.0):
            lifecycle.beat()

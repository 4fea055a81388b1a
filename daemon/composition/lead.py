"""Of several daemons one leads, and the others wait for it to end (docs/several-machines.md).

With SQLite there is one daemon: a file lock beside the database keeps a second one from starting. With PostgreSQL a
lease in the database says who leads (`actors.store.leases.Lead`).
"""

import contextlib
import random
from collections.abc import Iterator, Mapping

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from prometheus_client.core import Metric

from actors.store.engine import sqlite_file
from actors.store.errors import StoreUnavailable
from actors.store.leases import LEAD_SECONDS, Lead
from actors.system.lifecycle import Task
from actors.system.notify import Notify
from actors.system.supervisor import Supervisor
from daemon.api.listener import Listener
from daemon.api.waiting import Waiting
from daemon.figures import gauge
from daemon.processes.state_lock import held

log = structlog.get_logger(__name__)
_LOOK_SECONDS = 0.5
_LEAVE_SECONDS = 2.0
"""That the database has to hear that the lead is free."""
_LOCK_SECONDS = 15.0
"""That a daemon which is ending has to be gone: longer than it drains."""


async def leads(
    lead: Lead, waiting: Waiting, listener: Listener, meanwhile: Mapping[str, Task], notify: Notify
) -> bool:  # fmt: skip
    """Wait until this daemon leads: True as soon as it does, False if it is told to end before. Until then it answers
    by `waiting`, and has the tasks `meanwhile`."""
    if await _taken(lead, waiting):
        return True
    supervisor = Supervisor(rng=random.Random(), notify=notify)
    for name, task in {**meanwhile, "control": listener.task(waiting.app, look=anyio.lowlevel.checkpoint)}.items():
        supervisor.add(name, task)
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            while not await _taken(lead, waiting):
                notify.status(f"waits: {waiting.reason}")
                await anyio.sleep(_LOOK_SECONDS)
            group.cancel_scope.cancel()

        group.start_soon(ask)
        await supervisor.run()
        group.cancel_scope.cancel()
    return lead.epoch > 0


async def _taken(lead: Lead, waiting: Waiting) -> bool:
    try:
        with anyio.fail_after(LEAD_SECONDS):
            # Abandoned on cancellation: one that comes too late delays the next holder, and harms nobody.
            found = await anyio.to_thread.run_sync(lead.take, abandon_on_cancel=True)
    except (StoreUnavailable, TimeoutError) as error:
        reason = f"{type(error).__name__}: {error}"
    else:
        if found.taken:
            lead.keep(found.epoch)
            return True
        reason = f"{found.holder} leads, ask it at {found.about}"
    if reason != waiting.reason:
        waiting.reason = reason
        log.info("waits_to_lead", reason=reason)
    return False


async def give_back(lead: Lead) -> None:
    """The lead is free."""
    with anyio.move_on_after(_LEAVE_SECONDS, shield=True):
        await anyio.to_thread.run_sync(lead.give_back, abandon_on_cancel=True)


def lead_figures(lead: Lead) -> Iterator[Metric]:
    yield gauge("evolved_leader", "1 at the daemon that leads.", lead.leads)


def sole_use(store_url: str) -> contextlib.AbstractContextManager[None]:
    """Keep a second daemon away from an SQLite file. It is refused and waits for no lead: one that hangs in
    mid-transaction keeps the file locked, so nobody could take over from it."""
    database = sqlite_file(store_url)
    if database is None:
        return contextlib.nullcontext()
    refused = (
        "another daemon works with this database; end it first (fuser -v tells its process). Several daemons need one "
        "PostgreSQL: set database.url, see docs/several-machines.md"
    )
    return held(database.with_name(f"{database.name}.daemon"), refused, seconds=_LOCK_SECONDS)

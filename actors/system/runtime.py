"""Where actors run: trio as a guest on an asyncio (uvloop) host loop, in one thread.

nats-py and other asyncio-only libraries live on the host loop, unmodified; actors and their nurseries run in trio and
call over through a `Host`. A crossing costs about 100 us, so what crosses are batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import outcome
import trio
import uvloop

from actors.system.errors import HostCallCancelled

P = ParamSpec("P")
T = TypeVar("T")


class Host:
    """Calls over to the host loop, from a trio task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def __call__(self, afn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `afn(*args, **kwargs)` on the host loop. Cancelling the caller cancels the call, and the caller goes on
        only when the call has really ended."""
        # A cancelled caller must not start anything: without this the call would be made and thrown away.
        await trio.lowlevel.checkpoint_if_cancelled()
        call, ended = self._loop.create_task(afn(*args, **kwargs)), trio.Event()
        call.add_done_callback(lambda _: ended.set())
        try:
            await ended.wait()
        except trio.Cancelled:
            call.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
            # What came of it all the same is the caller's: a record that was fetched must not be lost.
            if call.cancelled():
                raise
        if call.cancelled():
            raise HostCallCancelled("the host loop ended it")
        return call.result()


def run(main: Callable[[Host], Awaitable[T]]) -> T:
    """Run `await main(host)` to its end and return what it returns; `host` reaches asyncio-only libraries."""
    return uvloop.run(_guest(main))


async def _guest(main: Callable[[Host], Awaitable[T]]) -> T:
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[outcome.Outcome[T]] = loop.create_future()
    scope = trio.CancelScope()
    host = Host(loop)

    async def guest_main() -> T:
        with scope:
            return await main(host)
        raise HostCallCancelled("the host loop was told to end")

    trio.lowlevel.start_guest_run(
        guest_main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=finished.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    try:
        return (await asyncio.shield(finished)).unwrap()
    except asyncio.CancelledError:
        # Ctrl-C outside a supervisor cancels the host's main task. The guest has to unwind before the loop closes
        # under it.
        scope.cancel()
        await asyncio.wait({finished})
        raise

"""After a restore the streams' consumers stand further than the store: back to the beginning with them.

What the store's marks have is not done again; what was handled after the backup, and is still in the streams, is
handled anew under the ids that it had then. Orders made after it are forgotten (docs/operate.md).
"""

import structlog

from actors.store import Store
from actors.system.bus import Bus

REWIND = "store.rewind"
"""State that a restore leaves: when its backup was made, unix seconds."""
_OTHERS = frozenset({"learner"})
"""Durables of processes whose memory the restore did not touch."""
log = structlog.get_logger(__name__)


async def rewind(store: Store, bus: Bus) -> int:
    """Have all streams delivered again from their beginning, if the store was restored; returns how many consumers.

    Call it before the first actor subscribes. A daemon that dies in between does it again.
    """
    if not await store.state_get(REWIND):
        return 0
    number = await bus.rewind(_OTHERS)
    await store.state_put(REWIND, b"")
    log.warning("streams_rewound", consumers=number)
    return number

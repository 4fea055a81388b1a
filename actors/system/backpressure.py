"""Slows the other actors down while the assembler has a backlog, so that the spool empties first.

What waits at the head can be lost to a quota; what is in the store can wait. Nobody stops: a follower works on after
`patience` seconds in any case.
"""

import anyio


class Backpressure:
    """Shared by the actors of one daemon."""

    def __init__(self, patience: float = 5.0) -> None:
        self._patience = patience
        self._calm = anyio.Event()
        self._calm.set()

    def note(self, *, full: bool) -> None:
        """The head has fetched a batch: `full` if there may be more where it came from."""
        if not full:
            self._calm.set()
        elif self._calm.is_set():
            self._calm = anyio.Event()

    async def calm(self) -> None:
        """Wait until the head has caught up, or for `patience` seconds."""
        with anyio.move_on_after(self._patience):
            await self._calm.wait()

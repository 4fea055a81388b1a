"""Production runs of which nobody has said yet how they went: kept by id, until somebody does or they are too old.

Bodies stay in the store; a run is fetched from there when its outcome has come.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from actors.messages import Trajectory


class Unreported:
    """Bounded; the oldest make room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: OrderedDict[str, Trajectory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, trajectory_id: object) -> bool:
        return trajectory_id in self._runs

    def add(self, run: Trajectory) -> list[str]:
        """Wait for the outcome of `run`; ids of those that had to make room."""
        # Without what takes memory: whether it is still fresh is all that is asked of it here.
        self._runs[run.id] = msgspec.structs.replace(run, goal="", tools=b"", steps=run.steps[:0], rows=())
        gone: list[str] = []
        while len(self._runs) > self._most:
            gone.append(self._runs.popitem(last=False)[0])
        return gone

    def told(self, trajectory_id: str) -> None:
        """Its outcome has come."""
        self._runs.pop(trajectory_id, None)

    def leave(self, gone: Callable[[Trajectory], bool]) -> list[str]:
        """Give up those that `gone` says are of no use any more; their ids."""
        left = [key for key, run in self._runs.items() if gone(run)]
        for key in left:
            del self._runs[key]
        return left

"""Sliding window: the opening and the last turns."""

from actors.rollout.context import ContextTemplate, History, Message, assemble


class SlidingWindow(ContextTemplate):
    """The opening and the last `turns` turns, fewer where the budget asks for it.

    Args:
        budget: as for every template; the oldest turns go first, and the episode ends where the newest does not fit.
        turns: most that are shown.
        stride: by how many turns the window moves at once. With 1 each turn beyond the window begins a row, and the
            engine computes all of its prompt again; with s every s-th does, and `turns` - s + 1 are shown at least,
            as far as the budget allows.

    Raises:
        ValueError: no turns, or a stride that is longer than the window.
    """

    def __init__(self, *, budget: int = 0, turns: int = 8, stride: int = 1) -> None:
        super().__init__(budget=budget)
        if turns < 1:
            raise ValueError(f"turns is {turns}; a window shows 1 or more")
        if not 1 <= stride <= turns:
            raise ValueError(f"stride is {stride}; it lies between 1 and turns, which is {turns}")
        self._turns, self._stride = turns, stride

    def messages(self, history: History) -> list[Message]:
        return assemble(history, range(1, self._first(history)))

    def shrink(self, history: History) -> bool:
        first = self._first(history)
        if first >= len(history.past):
            return False
        # By the stride here too: else each turn of a window that is full by its tokens would begin a row.
        history.memory["first"] = min(first + self._stride, len(history.past))
        return True

    def _first(self, history: History) -> int:
        """Number of the oldest turn that is shown."""
        beyond = max(0, len(history.past) - self._turns)
        moved = -(-beyond // self._stride) * self._stride + 1
        return max(moved, history.memory.get("first", 1))

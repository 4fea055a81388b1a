"""What a person sees while the demo runs: a live panel on a terminal, a line now and then anywhere else."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(rates: Sequence[float]) -> str:
    """Shares between 0 and 1 as a row of blocks."""
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(rate * len(BLOCKS)))] for rate in rates)


class View:
    """Shows the stage, how far it is, and what the daemon says of itself."""

    def __init__(self, console: Console, title: str, every: float = 10.0) -> None:
        self._console, self._title, self._every = console, title, every
        self._started = self._last = time.monotonic()
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._stage = ""

    def __enter__(self) -> "View":
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def stage(self, text: str) -> None:
        """A new stage: always said, on a terminal and in a log alike."""
        self._stage = text
        said = Text.assemble((f"{self.seconds:6.0f} s", "dim"), f"  {text}")
        self._console.print(said, highlight=False, soft_wrap=True)

    def update(self, done: float, status: dict[str, Any] | None, rates: Sequence[float]) -> None:
        """Progress of this stage, `done` between 0 and 1, with the daemon's `/api/status` if it answers."""
        if self._live:
            self._live.update(self._panel(done, status, rates))
        elif time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._console.print(
                f"{self.seconds:6.0f} s  {100 * done:3.0f} %  {_line(status)}", highlight=False, soft_wrap=True
            )

    def _panel(self, done: float, status: dict[str, Any] | None, rates: Sequence[float]) -> Panel:
        grid = Table.grid(padding=(0, 2))
        grid.add_row("stage", Text(self._stage))
        grid.add_row("progress", ProgressBar(total=1.0, completed=done, width=50))
        grid.add_row("time", f"{self.seconds:.0f} s")
        grid.add_row("agents", _line(status))
        grid.add_row("success", Text(sparkline(rates), style="green"))
        return Panel(Group(grid), title=self._title, border_style="cyan")


def _line(status: dict[str, Any] | None) -> str:
    if not status:
        return "the daemon does not answer yet"
    counts, success, serving = status["counts"], status["success"], status["serving"]
    rate = "–" if success["rate"] is None else f"{100 * success['rate']:.0f} %"
    return (
        f"success of the last {success['n']}: {rate}; serving v{serving['version'] if serving else 0}, "
        f"trained v{status['trained']}; {counts.get('exchanges', 0)} calls, "
        f"{100 * status['shares']['production']:.0f} % of training from production"
    )

"""`TensorBoard`: what each update told, as an event file for TensorBoard.

    Outcome -> scalars at the version's number -> <tensorboard_dir>/events.out.tfevents.*

Written by the caller's thread, an update at a time: tensorboardX's own writer does it in a thread whose queue blocks
for ever once the disk is full, and training must not wait for a curve.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from learner.errors import TensorBoardUnavailable
from learner.update import Outcome

_log = structlog.get_logger(__name__)


class TensorBoard:
    """One event file. Blocking, and never in the way: what cannot be written is counted and told once."""

    def __init__(self, directory: Path, *, clock: Callable[[], float]) -> None:
        """`directory` is made if it is not there; TensorBoardUnavailable if that or tensorboardX is missing."""
        try:
            from tensorboardX import summary
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2
        except ModuleNotFoundError as error:
            raise TensorBoardUnavailable(
                f"train.tensorboard needs {error.name}; install the extra: pip install 'evolved[learner]'"
            ) from error
        # Neither has types: the one has no annotations, the other is generated at import.
        self._summary: Any = summary
        self._messages: Any = event_pb2
        self._clock = clock
        self._failing = False
        self.lost = 0
        """Updates that could not be written."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Two starts within a second would otherwise share a name, and the second would empty the first's file.
            self._writer: Any = EventsWriter(str(directory / "events"), f".{os.getpid()}")
            self._writer.flush()
        except OSError as error:
            raise TensorBoardUnavailable(f"train.tensorboard: {error}") from error

    def write(self, outcome: Outcome) -> None:
        """Add one order's figures, at the newest version then."""
        values: list[Any] = []
        for name, value in sorted(outcome.metrics.items()):
            values += self._summary.scalar(tag(name), float(value)).value
        for reason, n in sorted(outcome.dropped.items()):
            values += self._summary.scalar(f"dropped/{reason}", float(n)).value
        if outcome.reason:
            values += self._summary.scalar(f"skipped/{outcome.reason}", 1.0).value
        event = self._messages.Event(step=outcome.candidate.version, wall_time=self._clock())
        event.summary.value.extend(values)
        try:
            self._writer.write_event(event)
            self._writer.flush()
        except OSError as error:
            self.lost += 1
            if not self._failing:
                _log.warning("tensorboard_lost", reason=str(error))
            self._failing = True
        else:
            if self._failing:
                _log.info("tensorboard_back", lost=self.lost)
            self._failing = False

    def close(self) -> None:
        """The file is complete; nothing can be written after."""
        try:
            self._writer.close()
        except OSError as error:
            _log.warning("tensorboard_lost", reason=str(error))


def tag(figure: str) -> str:
    """TensorBoard's name for a figure: what stands before the first underscore is the group it is shown in."""
    group, _, name = figure.partition("_")
    return f"{group}/{name}" if name else f"update/{figure}"

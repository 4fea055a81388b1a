"""The files that batches travel in: one an order, in the state directory, under the order's id."""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from actors.messages import BatchItem, BatchOrder, derived_id, encode_batch
from actors.messages.files import write_whole
from actors.system.errors import DependencyUnavailable

KEEP_FILES = 64
"""Batch files kept after use, newest first: for whoever looks at what an update was made of."""
_SUFFIX = ".batch"
_log = structlog.get_logger(__name__)


class BatchFiles:
    """Those in `directory`, which the learner must be able to read. Blocking: called in a thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, items: Sequence[BatchItem], now: float) -> BatchOrder:
        """The order that `items` be trained on; its id follows from them. DependencyUnavailable: no room, or no right
        to write; no record is to blame, and none may be parked for it."""
        members = tuple(item.attributed.id for item in items)
        runs = [item.attributed.trajectory for item in items]
        order_id, data = derived_id("batch", *sorted(members)), encode_batch(items)
        path = self._directory / f"{order_id}{_SUFFIX}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # What agents and users said stands in there: for our own eyes alone.
            write_whole(path, data, mode=0o600)
        except OSError as error:
            raise DependencyUnavailable(
                f"no batch of {len(data)} bytes could be written: {error}; make room where state_dir is"
            ) from error
        self.clean()
        order = BatchOrder(
            id=order_id, path=str(path.absolute()), sha256=hashlib.sha256(data).hexdigest(), size=len(data),
            trajectories=members, production=sum(run.source == "production" for run in runs), created=now,
        )  # fmt: skip
        _log.info(
            "batch_written", order=order_id, trajectories=len(members), production=order.production,
            oldest=min(run.min_version for run in runs),
        )  # fmt: skip
        return order

    def clean(self, known: Collection[str] | None = None) -> None:
        """Remove what a crash left half written, and all but the newest files, the outstanding order's among them. Of
        the files those of no order in `known` too: they were not committed, or hold what was forgotten."""
        for path in self._directory.glob(f".*{_SUFFIX}.part"):
            path.unlink(missing_ok=True)
        files = sorted(self._directory.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for number, path in enumerate(files):
            if number >= KEEP_FILES or (known is not None and path.stem not in known):
                path.unlink(missing_ok=True)

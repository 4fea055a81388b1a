"""`Updater`: one order from its file to the next version. Blocking; the service runs it in a worker thread.

    order file -> credit -> batch -> trainer -> version and cursor, committed together -> Candidate

An order that is already in the cursor is not trained again; its answer is found again instead. After an error between
training and commit the trainer is put back to what is on disk, so memory and disk never tell different stories.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import structlog

from actors.messages import BatchItem, BatchOrder, Candidate, Directive, MessageError, decode_batch, derived_id
from learner.batch import BuildSettings, build
from learner.checkpoints import Checkpoints
from learner.credit import Running, assign
from learner.errors import CheckpointInvalid, OrderFileMissing, OrderUnusable
from learner.settings import LearnerSettings
from learner.trainers import Trainer

_log = structlog.get_logger(__name__)
Result = Literal["trained", "skipped", "repeated", "rolled_back"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order or a directive."""

    result: Result
    candidate: Candidate
    """To be published."""
    dropped: dict[str, int] = {}
    """Trajectories and rows left out, by reason."""
    metrics: dict[str, float] = {}


class Updater:
    """Trainer and checkpoints together."""

    def __init__(
        self,
        settings: LearnerSettings,
        checkpoints: Checkpoints,
        make_trainer: Callable[[Path, Path], Trainer],
        *,
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            make_trainer: called with the directory of the newest version and that of version 0, the reference.
            clock: unix seconds.
        """
        self._settings, self._checkpoints, self._clock = settings, checkpoints, clock
        self._make_trainer = make_trainer
        self._trainer: Trainer | None = None

    def open(self) -> int:
        """Take up the newest version and its optimizer; returns its number.

        Raises:
            LearnerError: there is nothing to begin with, or it cannot be used.
            OSError: the disk fails.
        """
        warm_start = Path(self._settings.warm_start) if self._settings.warm_start else None
        cursor = self._checkpoints.open(warm_start, self._clock())
        newest, first = self._checkpoints.newest, self._checkpoints.versions.path(0)
        # Version 0 is never deleted by us; somebody who did it by hand gets the present weights as anchor.
        self._trainer = self._make_trainer(newest, first if first.is_dir() else newest)
        self._trainer.restore(newest, self._checkpoints.memory)
        return cursor.version

    def apply(self, order: BatchOrder) -> Outcome:
        """Train on `order`, unless that was done before.

        Raises:
            OrderUnusable: the file is not what the order says.
            OSError: disk full; nothing has changed, the order can be tried again.
            LearnerError: see `open`.
        """
        trainer = self._ready()
        repeated = self._repeated(order.id)
        if repeated is not None:
            return repeated
        items = read_order(order)
        cursor = self._checkpoints.cursor
        credits = assign(items, self._settings.credit, cursor.running)
        built = build(items, credits, self._limits(trainer), order=order.id)
        dropped = _merged(credits.skipped, built.dropped)
        metrics = {f"credit_{name}": value for name, value in credits.statistics.items()} | built.statistics
        if built.batch is None:
            return self._nothing(order.id, credits.running, dropped, metrics)
        seed = int(np.random.SeedSequence([self._settings.seed, cursor.version]).generate_state(1)[0])
        # A name for "memory may differ from disk": whatever raises from here on, the next call starts from disk again.
        self._trainer = None
        report = trainer.update(built.batch, seed=seed)
        metrics |= report.metrics
        if report.steps == 0:
            trainer.restore(self._checkpoints.newest, self._checkpoints.memory)
            self._trainer = trainer
            return self._nothing(order.id, credits.running, dropped, metrics)
        candidate = self._checkpoints.commit(
            order.id,
            save=trainer.save,
            save_state=trainer.save_state,
            running=credits.running,
            metrics=metrics,
            now=self._clock(),
        )
        self._trainer = trainer
        return Outcome(result="trained", candidate=candidate, dropped=dropped, metrics=metrics)

    def roll_back(self, directive: Directive) -> Outcome | None:
        """Make the version that `directive` goes back to the newest again, under a new number, the optimizer afresh.

        Where to is `details["to"]`; without it, the parent of `details["version"]`, the version that fared badly. None
        if the directive names no version that is on disk, or one that these weights do not come from.

        Raises:
            OSError: disk full; nothing has changed.
            LearnerError: see `open`.
        """
        trainer = self._ready()
        repeated = self._repeated(directive.id)
        if repeated is not None:
            return repeated
        cursor, versions = self._checkpoints.cursor, self._checkpoints.versions
        target = _number(directive, "to")
        bad = _number(directive, "version")
        if bad is not None and bad not in cursor.chain:
            # Its line was left already: going back a second time would undo good updates.
            return None
        try:
            if target is None and bad is not None:
                target = versions.read(bad).parent
            if target is None or target < 0:
                return None
            versions.read(target, verify=True)
        except CheckpointInvalid as error:
            _log.error("rollback_impossible", directive=directive.id, reason=str(error))
            return None
        self._trainer = None
        trainer.restore(versions.path(target), None)
        candidate = self._checkpoints.commit(
            directive.id,
            save=trainer.save,
            save_state=None,
            running=cursor.running,
            metrics={"rollback": 1.0},
            now=self._clock(),
            parent=target,
        )
        self._trainer = trainer
        return Outcome(result="rolled_back", candidate=candidate)

    def give_up(self, order: str) -> Candidate:
        """Note that an order can never be trained on; returns what tells the curator that it is off the list.

        Raises:
            OSError: the disk fails.
            LearnerError: see `open`.
        """
        self._ready()
        if self._checkpoints.cursor.finished(order) is None:
            self._checkpoints.done(order, self._checkpoints.cursor.running)
        return self._again(order, "failed")

    def forget_baselines(self, directive: Directive) -> None:
        """The world has changed: what clusters used to score says nothing about what they should score now.

        With the old running means every failure after a drift would count as far below average, and the policy would
        unlearn, step by step, even what was right in it.

        Raises:
            OSError: the disk fails.
            LearnerError: see `open`.
        """
        self._ready()
        if self._checkpoints.cursor.finished(directive.id) is None:
            self._checkpoints.done(directive.id, {})

    def _ready(self) -> Trainer:
        if self._trainer is None:
            self.open()
        assert self._trainer is not None
        return self._trainer

    def _nothing(
        self, order: str, running: dict[str, Running], dropped: dict[str, int], metrics: dict[str, float]
    ) -> Outcome:
        self._checkpoints.done(order, running)
        return Outcome(result="skipped", candidate=self._again(order, "skipped"), dropped=dropped, metrics=metrics)

    def _repeated(self, record: str) -> Outcome | None:
        version = self._checkpoints.cursor.finished(record)
        if version is None:
            return None
        try:
            candidate = self._checkpoints.versions.candidate(version)
        except CheckpointInvalid:  # deleted since, so long ago was it
            return Outcome(result="repeated", candidate=self._again(record, "skipped"))
        if record not in candidate.batch_ids:
            candidate = self._again(record, "skipped")
        return Outcome(result="repeated", candidate=candidate)

    def _again(self, order: str, why: str) -> Candidate:
        """The newest version under an id of `order`'s own, so that whoever waits for the order hears of it."""
        newest = self._checkpoints.versions.candidate(self._checkpoints.cursor.version)
        return msgspec.structs.replace(
            newest, id=derived_id("candidate", newest.version, order), batch_ids=(order,), metrics={why: 1.0}
        )

    def _limits(self, trainer: Trainer) -> BuildSettings:
        settings = self._settings
        return BuildSettings(
            vocabulary=trainer.vocabulary,
            max_tokens=trainer.max_tokens,
            chain=self._checkpoints.cursor.chain,
            newest=self._checkpoints.highest,
            max_staleness=settings.max_staleness,
            max_staleness_guided=settings.max_staleness_guided,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            clip_boosted=settings.clip_boosted,
        )


def read_order(order: BatchOrder) -> Sequence[BatchItem]:
    """The items of the file that `order` names.

    Raises:
        OrderFileMissing: it cannot be opened.
        OrderUnusable: other size or digest than the order's, or no batch.
    """
    path = Path(order.path)
    try:
        size = path.stat().st_size
        if size != order.size:
            raise OrderUnusable(f"{path.name} has {size} bytes, the order says {order.size}")
        data = path.read_bytes()
    except OSError as error:
        raise OrderFileMissing(f"{path.name}: {error.strerror}") from error
    if sha256(data).hexdigest() != order.sha256:
        raise OrderUnusable(f"{path.name} has another digest than the order says")
    try:
        return decode_batch(data)
    except MessageError as error:
        raise OrderUnusable(f"{path.name}: {error}") from error


def _number(directive: Directive, key: str) -> int | None:
    text = directive.details.get(key, "")
    return int(text) if text.isdecimal() else None


def _merged(*counts: dict[str, int]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for count in counts:
        for reason, n in count.items():
            merged[reason] = merged.get(reason, 0) + n
    return merged

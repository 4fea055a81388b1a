"""`Updater`: one order from its file to the next version. Blocking; the service runs it in a worker thread.

    order file -> credit -> batch -> trainer -> version and cursor, committed together -> Candidate

An order that is already in the cursor is not trained again; its answer is found again instead. Going back writes no
version: the next update starts from an older one (`checkpoints`). After an error between
training and commit the trainer is put back to what is on disk, so memory and disk never tell different stories. Where
the disk has no full state of the head, that is the last one and the updates since, made again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import structlog

from actors.messages import (
    Answer,
    BatchItem,
    BatchOrder,
    Candidate,
    Directive,
    FileDigest,
    MessageError,
    decode_batch,
)
from actors.messages.manifest import SPOT_CHECK
from learner.batch import TrajectoryBatch
from learner.build import BuildSettings, Built, build
from learner.checkpoints import Checkpoints
from learner.credit import Credits, assign
from learner.cursor import Reply
from learner.errors import BatchRefused, CheckpointInvalid, LearnerError, OrderFileMissing, OrderUnusable
from learner.memory import Recovery
from learner.settings import LearnerSettings
from learner.spot_check import spot_check
from learner.trainers import Trainer

_log = structlog.get_logger(__name__)
Result = Literal["trained", "skipped", "repeated", "went_back"]
_REMEDY = (
    "the weights are those that were written, the optimizer is close to theirs; if settings of [train] or the "
    "machine changed since, that is why, and nothing needs doing"
)
_TICK = 1e-3
"""Seconds between two words of ours, where the clock was put back."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order or a directive."""

    result: Result
    candidate: Candidate
    """To be published."""
    reason: str = ""
    """Why an order was skipped: `nothing_left` (see `dropped`), `no_step` (each was thrown away or undone), or the
    reason of `BatchRefused`; empty otherwise."""
    dropped: dict[str, int] = {}
    """Trajectories and rows left out, by reason."""
    metrics: dict[str, float] = {}
    ages: tuple[int, ...] = ()
    """Sampled tokens by staleness, as `Built.ages`."""


class Updater:
    """Trainer and checkpoints together."""

    def __init__(
        self,
        settings: LearnerSettings,
        checkpoints: Checkpoints,
        make_trainer: Callable[[Path, Path], Trainer],
        *,
        clock: Callable[[], float],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Args:
            make_trainer: called with the directory of the head and that of version 0, the reference.
            clock: unix seconds.
            timer: seconds from anywhere, for durations.
        """
        self._settings, self._checkpoints, self._clock, self._timer = settings, checkpoints, clock, timer
        self._make_trainer = make_trainer
        self._trainer: Trainer | None = None
        self._exact = True
        """Whether the head's optimizer, as the trainer has it, can be found again from disk."""
        self._said = 0.0
        """Unix seconds of our last word."""

    def open(self) -> int:
        """Take up the version to go on from and its optimizer; returns its number. Raises LearnerError: there is
        nothing to begin with, or it cannot be used; OSError: the disk fails."""
        warm_start = Path(self._settings.warm_start) if self._settings.warm_start else None
        cursor = self._checkpoints.open(warm_start, self._clock())
        self._said = self._checkpoints.said()
        head, first = self._checkpoints.head, self._checkpoints.versions.path(0)
        # Version 0 is never deleted by us; somebody who did it by hand gets the present weights as anchor.
        self._take_up(self._make_trainer(head, first if first.is_dir() else head), cursor.head)
        return cursor.head

    def _now(self) -> float:
        """Unix seconds, but not before our last word: whoever listens tells by it which is the newer, and would take
        for old all that is said after a clock was put back."""
        now = self._clock()
        self._said = now if now >= self._said else self._said + _TICK
        return self._said

    def apply(self, order: BatchOrder) -> Outcome:
        """Train on `order`, unless that was done before. OrderUnusable: the file is not what it says; after an OSError
        nothing has changed."""
        trainer = self._ready()
        repeated = self._repeated(order.id)
        if repeated is not None:
            return repeated
        items = read_order(order)
        cursor = self._checkpoints.cursor
        credits = assign(items, self._settings.credit)
        built = build(items, credits, self._limits(trainer))
        metrics = {f"credit_{name}": value for name, value in credits.statistics.items()} | built.statistics
        told: dict[str, Any] = {
            "dropped": _merged(credits.skipped, built.dropped),
            "metrics": metrics,
            "ages": tuple(built.ages.tolist()),
        }
        missed = partial(no_gradient, items, credits, built)
        if built.batch is None:
            return self._skipped(order.id, "nothing_left", missed("nothing_left"), told)
        seed = int(np.random.SeedSequence([self._settings.seed, cursor.version]).generate_state(1)[0])
        # A name for "memory may differ from disk": whatever raises from here on, the next call starts from disk again.
        self._trainer = None
        began = self._timer()
        try:
            report = trainer.update(built.batch, seed=seed)
        except BatchRefused as refusal:
            _log.warning("batch_refused", order=order.id, reason=refusal.reason, text=str(refusal))
            self._trainer = trainer  # nothing has changed in it
            return self._skipped(order.id, refusal.reason, missed(refusal.reason), told)
        seconds = max(self._timer() - began, 1e-9)
        metrics |= {"seconds_update": seconds, "tokens_per_second": float(built.batch.lengths.sum()) / seconds}
        metrics |= report.metrics
        if report.steps == 0:
            if report.metrics.get("steps_undone"):
                self._take_up(trainer, cursor.head)  # the weights are as they were, the moments have seen the step
            self._trainer = trainer
            return self._skipped(order.id, "no_step", missed("no_step"), told)
        candidate = self._checkpoints.commit(
            order.id,
            save=partial(_save, trainer, seed),
            save_state=trainer.save_state,
            metrics=metrics,
            now=self._now(),
            no_gradient=missed("", report.untrained),
            batch=built.batch if self._exact else None,
            seed=seed,
        )
        self._trainer, self._exact = trainer, True
        return Outcome(result="trained", candidate=candidate, **told)

    def go_back(self, directive: Directive) -> Outcome | None:
        """Let the next update start from an older version, with that one's moments if they are kept.

        Which is `details["to"]`; without it, the parent of `details["version"]`, the version that fared badly. None if
        there is nothing to do: these weights do not come from the version that fared badly, or stand there already, or
        the one to go back to is not on disk and sound.
        """
        trainer = self._ready()
        repeated = self._repeated(directive.id, otherwise="went_back")
        if repeated is not None:
            return repeated
        checkpoints = self._checkpoints
        cursor, versions = checkpoints.cursor, checkpoints.versions
        target, bad = _number(directive, "to"), _number(directive, "version")
        log = _log.bind(directive=directive.id, kind=directive.kind)
        if bad is not None and bad not in cursor.chain:
            # Its line was left already: going back a second time would undo good updates.
            log.warning("going_back_ignored", reason=f"version {bad} is not in the line of version {cursor.head}")
            return None
        try:
            if target is None and bad is not None:
                target = versions.read(bad).parent
            if target is None or target < 0:
                log.error("going_back_impossible", reason=f"no version to go back to in {directive.details}")
                return None
            if target == cursor.head:
                log.warning("going_back_ignored", reason=f"version {target} is where the next update starts already")
                return None
            versions.read(target, verify=True)
        except CheckpointInvalid as error:
            log.error("going_back_impossible", reason=str(error))
            return None
        log.info("going_back", to=target, head=cursor.head)
        self._trainer = None
        # Before the commit: weights that cannot be taken up must not become those to go on from.
        self._take_up(trainer, target)
        self._trainer = None
        metrics = {"moments_kept": float(self._exact)}
        reply = Reply(answer="went_back", created=self._now(), metrics=metrics)
        checkpoints.go_back(directive.id, target, reply)
        self._trainer = trainer
        return Outcome(result="went_back", candidate=checkpoints.answer(directive.id), metrics=metrics)

    def give_up(self, order: BatchOrder) -> Candidate:
        """Note that an order can never be trained on; returns what tells the curator that it is off the list."""
        self._ready()
        if self._checkpoints.cursor.finished(order.id) is None:
            reply = Reply(answer="failed", no_gradient=dict.fromkeys(order.trajectories, "failed"))
            self._checkpoints.done(order.id, reply)
        return self._checkpoints.answer(order.id, otherwise="failed")

    def _ready(self) -> Trainer:
        if self._trainer is None:
            self.open()
        assert self._trainer is not None
        return self._trainer

    def _take_up(self, trainer: Trainer, version: int) -> None:
        """Put `trainer` to `version` as it was when it was written, as far as it can be found again.

        Its weights always are: they are on disk. What the optimizer lacks is told, and the next version has a full
        state of its own.
        """
        checkpoints = self._checkpoints
        recovery, weights = checkpoints.recovery(version), checkpoints.versions.path(version)
        start = checkpoints.versions.path(recovery.version)
        for reason in recovery.unsound:
            _log.warning("moments_unusable", reason=reason)
        if not recovery.kept:
            _log.warning("moments_not_kept", version=version)
        elif recovery.broken:
            _log.error(
                "replay_impossible", version=version, reason=recovery.broken,
                goes_on="its weights, an optimizer that starts afresh" if recovery.afresh
                else f"its weights, the optimizer of version {recovery.version}",
                remedy="to go on exactly, stop the learner and bring what is named back from a backup of state_dir",
            )  # fmt: skip
        if recovery.afresh or (recovery.state is None and not start.is_dir()):
            lost = checkpoints.cursor.updates > 0  # a new learner has lost nothing
            trainer.restore(weights, None, rewarm=lost)
            self._exact = not lost
        elif recovery.version == version:
            trainer.restore(weights, recovery.state)
            self._exact = True
        else:
            self._exact = self._replay(trainer, recovery, start if start.is_dir() else weights, weights)
        self._trainer = trainer

    def _replay(self, trainer: Trainer, recovery: Recovery, start: Path, weights: Path) -> bool:
        """Make the updates since `recovery.version` again, and have `trainer` end at the numbers in `weights`; whether
        it came to those by itself, to the bit.

        Args:
            start: directory of weights for what the state lacks.
        """
        began, broken = self._timer(), recovery.broken
        trainer.restore(start, recovery.state)
        try:
            for update in recovery.updates:
                trainer.update(TrajectoryBatch.load(update.batch), seed=update.seed)
        except LearnerError as error:
            broken = f"{type(error).__name__}: {error}"
            _log.error("replay_failed", version=weights.name, reason=broken, remedy=_REMEDY)
            trainer.restore(start, recovery.state, rewarm=recovery.state is None)
        differing = trainer.settle(weights)
        if differing and not broken:
            _log.warning("replay_differs", version=weights.name, numbers=differing, remedy=_REMEDY)
        _log.info(
            "replayed", since=recovery.version, version=weights.name, updates=len(recovery.updates),
            seconds=self._timer() - began, exact=not broken and not differing,
        )  # fmt: skip
        return not broken and not differing

    def _skipped(self, order: str, reason: str, missed: dict[str, str], told: dict[str, Any]) -> Outcome:
        self._checkpoints.done(order, Reply(answer="skipped", no_gradient=missed))
        candidate = self._checkpoints.answer(order)
        return Outcome(result="skipped", candidate=candidate, reason=reason, **told)

    def _repeated(self, record: str, *, otherwise: Answer = "skipped") -> Outcome | None:
        cursor = self._checkpoints.cursor
        said = cursor.replies.get(record)
        if cursor.finished(record) is None or (said is not None and said.answer == "failed"):
            return None  # an order that failed and comes again was put back
        return Outcome(result="repeated", candidate=self._checkpoints.answer(record, otherwise=otherwise))

    def _limits(self, trainer: Trainer) -> BuildSettings:
        return BuildSettings(
            vocabulary=trainer.vocabulary,
            max_tokens=trainer.max_tokens,
            chain=self._checkpoints.cursor.chain,
            newest=self._checkpoints.highest,
            max_staleness=self._settings.max_staleness,
            processes=self._settings.trainer == "native",
        )


def read_order(order: BatchOrder) -> Sequence[BatchItem]:
    """The items of the file that `order` names; OrderFileMissing, or OrderUnusable: not what the order says."""
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


def no_gradient(
    items: Sequence[BatchItem],
    credits: Credits,
    built: Built,
    whole: str = "",
    untrained: Mapping[int, str] | None = None,
) -> dict[str, str]:
    """Trajectories of a batch that an update learned nothing from, by id, with the reason of each: their own, or that
    of the `whole`. A trajectory of which some row trained is not among the `untrained`."""
    ids = [item.attributed.trajectory.id for item in items]
    own, trained = built.reasons | credits.reasons, set[str]()
    if built.batch is not None and not whole:
        names = [built.batch.trajectories[at] for at in built.batch.trajectory]
        left = untrained or {}
        trained = {name for row, name in enumerate(names) if row not in left}
        own |= {names[row]: reason for row, reason in left.items()}
    return {id: own.get(id) or whole or "dropped" for id in ids if id not in trained}


def _save(trainer: Trainer, seed: int, directory: Path) -> Sequence[FileDigest]:
    known = trainer.save(directory)
    (directory / SPOT_CHECK).write_bytes(msgspec.json.encode(spot_check(trainer, seed)))
    return known


def _number(directive: Directive, key: str) -> int | None:
    text = directive.details.get(key, "")
    return int(text) if text.isdecimal() else None


def _merged(*counts: dict[str, int]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for count in counts:
        for reason, n in count.items():
            merged[reason] = merged.get(reason, 0) + n
    return merged

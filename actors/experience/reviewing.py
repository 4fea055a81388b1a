"""Reviewing lessons: the books on their trials, and the closed-book probe after each swap.

Counters are not stored: they follow from the newest sandbox rollouts, which the store has, so nothing is counted twice.
After a swap the question is put anew: do the weights that serve now know an active lesson without seeing it? Unguided
rollouts of those weights, or later ones, are compared with guided ones; a lesson that has been internalised is retired
and stays watched, and comes back as a candidate when unguided success falls, or when the weights that knew it are gone.
"""

from collections import deque
from collections.abc import Callable, Collection

import msgspec

from actors.experience.lesson_ab_test import (
    INTERNALISED,
    MAX_TRIALS,
    RETIRE_TRIALS,
    LessonTrial,
    closed_book,
    next_state,
    read_trial,
    tally,
    unlearnt,
    window_of,
)
from actors.experience.lessons import rivals
from actors.experience.pool import PRACTICES, LessonPool
from actors.messages import Experience, Serving, Trajectory

_TRIED = PRACTICES | {"insight"}
"""Kinds that rollouts try; skills are tried by replay, and what a tool memory states is no advice."""


class Reviewing:
    """Sees to it that lessons have the state that their trials ask for.

    Args:
        memory: newest rollouts that are remembered as trials.
        between: seconds between two revisions of one lesson that follow from trials.
    """

    def __init__(self, *, pool: LessonPool, memory: int, between: float, clock: Callable[[], float]) -> None:
        self._pool, self._between, self._clock = pool, between, clock
        self._trials: deque[LessonTrial] = deque(maxlen=memory)
        """Newest first."""
        self.served = -1
        """Version that was swapped in last."""

    def remember(self, run: Trajectory) -> None:
        """Take a rollout as a trial, if it is one."""
        trial = read_trial(run)
        if trial is not None:
            self._trials.appendleft(trial)

    def forget(self, ids: Collection[str]) -> None:
        """Let go of trials."""
        kept = [trial for trial in self._trials if trial.id not in ids]
        if len(kept) < len(self._trials):
            self._trials = deque(kept, maxlen=self._trials.maxlen)

    def swapped(self, serving: Serving) -> None:
        """Other weights serve: the closed-book probe begins anew. After a rollback, what later weights knew is open."""
        back = serving.result in ("rolled_back", "refused")
        self.served = serving.previous if back else serving.version
        for lesson in self._pool:
            learnt_at = lesson.detail.get("internalised_at", -1)
            if lesson.reason == INTERNALISED and lesson.state == "retired" and learnt_at > self.served:
                self._again(lesson, "the weights that knew it are gone")

    def review(self) -> None:
        """The state of every lesson after its trials."""
        now = self._clock()
        for lesson in self._pool:
            if lesson.kind not in _TRIED or now - lesson.updated < self._between:
                continue
            if lesson.state == "retired":
                self._watch(lesson)
            elif lesson.state != "quarantined":
                self._try(lesson)

    def _try(self, lesson: Experience) -> None:
        found = tally(lesson, self._trials, window_of(lesson))
        after = next_state(lesson, found)
        if after.state == lesson.state == "active" and self.served >= 0:
            now = tally(lesson, self._trials, MAX_TRIALS, since_version=self.served)
            after = closed_book(lesson, now)
            found = now if after.state != lesson.state else found
        if after.state == lesson.state:
            return
        detail = dict(lesson.detail)
        if after.reason == INTERNALISED:
            self._pool.counts["internalised"] += 1
            detail["internalised_at"] = self.served
        self._pool.put(
            msgspec.structs.replace(
                lesson, state=after.state, reason=after.reason, guided=found.guided, unguided=found.unguided,
                detail=detail,
            )
        )  # fmt: skip

    def _watch(self, lesson: Experience) -> None:
        if lesson.reason != INTERNALISED:
            return
        found = tally(lesson, self._trials, RETIRE_TRIALS)
        if unlearnt(lesson, found):
            self._again(lesson, "unlearnt: unguided success fell")

    def _again(self, lesson: Experience, reason: str) -> None:
        taken = any(
            other.state == "active" and other.kind in PRACTICES and rivals(lesson, other)
            for other in self._pool.live(lesson.tenant)
        )
        if taken:
            return  # another way to the same goal has taken its place
        self._pool.counts["unlearnt"] += 1
        detail = {name: value for name, value in lesson.detail.items() if name != "internalised_at"}
        self._pool.put(
            msgspec.structs.replace(
                lesson, state="candidate", reason=reason, guided=(0, 0), unguided=(0, 0), detail=detail
            )
        )  # fmt: skip

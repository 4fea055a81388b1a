"""What becomes of a lesson: its trials in the sandbox, and the state that follows from them. Pure.

    candidate --(verified by a probe, or guided beats unguided)--> active --(no longer better than none)--> retired
        '------------------(enough trials and no gain)------------------------------------------------------^

A rollout that saw the lesson in its prompt is guided, one that saw none is unguided; both attempt goals that the lesson
is about, in groups of the same task. A lesson that unguided rollouts no longer need has been learnt by the weights.
"""

from collections.abc import Iterable

import msgspec

from actors.calls import mentions
from actors.messages import Experience, ExperienceState, Trajectory

_SUCCESS = 0.5


class TrialSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How lessons prove themselves."""

    min_trials: int = 24
    """Guided rollouts, and unguided ones, before a candidate can become active."""
    min_gain: float = 0.1
    """How much more often guided rollouts must succeed for that."""
    max_trials: int = 96
    """Guided rollouts after which a candidate that has not become active is retired."""
    retire_trials: int = 48
    """Guided rollouts, and unguided ones, before an active lesson can be retired; also how many of the newest count."""
    slack: float = 0.0
    """An active lesson is retired once guided rollouts are better by no more than this."""


class Trial(msgspec.Struct, frozen=True):
    """A sandbox rollout in brief."""

    id: str
    tenant: str
    goal: str
    ended: float
    succeeded: bool
    lessons: frozenset[str]


class Tally(msgspec.Struct, frozen=True):
    """Trials of a lesson: how many, and how many succeeded."""

    guided: tuple[int, int]
    unguided: tuple[int, int]

    @property
    def gain(self) -> float:
        """Difference of the success rates; 0 while one side has no trials."""
        return _rate(self.guided) - _rate(self.unguided) if self.guided[0] and self.unguided[0] else 0.0

    @property
    def trials(self) -> int:
        """Of the side that has fewer."""
        return min(self.guided[0], self.unguided[0])


def read_trial(trajectory: Trajectory) -> Trial | None:
    """`trajectory` as a trial; None if it is no finished sandbox rollout."""
    if trajectory.source != "sandbox" or trajectory.outcome is None:
        return None
    return Trial(
        trajectory.id,
        trajectory.tenant,
        trajectory.goal,
        trajectory.ended,
        trajectory.outcome >= _SUCCESS,
        frozenset(trajectory.experience_ids),
    )


def tally(lesson: Experience, newest_first: Iterable[Trial], window: int) -> Tally:
    """The newest `window` trials a side since the lesson's last revision."""
    guided: list[bool] = []
    unguided: list[bool] = []
    for trial in newest_first:
        if trial.tenant != lesson.tenant or trial.ended < lesson.updated:
            continue
        if not mentions(trial.goal, lesson.when_to_use):
            continue
        if lesson.id in trial.lessons:
            guided.append(trial.succeeded)
        elif not trial.lessons:
            unguided.append(trial.succeeded)
    return Tally(*((len(side[:window]), sum(side[:window])) for side in (guided, unguided)))


def next_state(lesson: Experience, found: Tally, settings: TrialSettings) -> ExperienceState:
    """The state that `lesson` should have after the trials in `found`."""
    if lesson.state == "candidate":
        if found.trials >= settings.min_trials and found.gain >= settings.min_gain:
            return "active"
        return "retired" if found.trials >= settings.max_trials else "candidate"
    if lesson.state == "active" and found.trials >= settings.retire_trials and found.gain <= settings.slack:
        return "retired"
    return lesson.state


def window_of(lesson: Experience, settings: TrialSettings) -> int:
    """How many of the newest trials a side decide about `lesson`."""
    return settings.max_trials if lesson.state == "candidate" else settings.retire_trials


def _rate(side: tuple[int, int]) -> float:
    return side[1] / side[0] if side[0] else 0.0

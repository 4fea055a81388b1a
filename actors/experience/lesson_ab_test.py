"""What becomes of a lesson: its trials in the sandbox, and the state that follows from them. Pure.

    quarantined --(independent sources)--> candidate --(verified by a probe, or guided beats unguided)--> active
    candidate, active --(surely harmful, no gain, internalised)--> retired --(unlearnt again)--> candidate

A rollout that saw the lesson in its prompt is guided, one that saw none is unguided; both attempt goals that the lesson
is about, in groups of the same task. The utility of a lesson is the difference of their success rates, with Newcombe's
interval. A lesson that unguided rollouts no longer need has been learnt by
the weights: it is *internalised*, and comes back if they forget it.

The limits are looked at again and again, so their confidence is that of one look; what that costs is measured in
docs/how-it-learns.md.
"""

from collections.abc import Iterable

import msgspec

from actors.messages import Experience, ExperienceState, Trajectory
from actors.statistics.intervals import Interval, newcombe, wilson
from actors.tool_results.tool_calls import mentions

_SUCCESS = 0.5
INTERNALISED = "internalised"
"""Reason of a lesson that the weights have learnt."""
MIN_GAIN = 0.1
"""How much more often guided rollouts must succeed before a candidate becomes active; and the interval must lie above
0."""
_CONFIDENCE = 0.95
"""Of the intervals, two-sided."""
MIN_TRIALS = 24
"""Guided rollouts, and unguided ones, before a candidate can become active."""
MAX_TRIALS = 96
"""Guided rollouts after which a candidate that has not become active is retired; earlier if it can no longer reach
MIN_GAIN."""
RETIRE_TRIALS = 48
"""Guided rollouts, and unguided ones, before an active lesson can be retired for want of a gain; also how many of the
newest count."""
HARM_TRIALS = 12
"""Guided rollouts, and unguided ones, before a lesson can be retired because guided rollouts surely do worse."""
RETIRE_HIGH = 0.15
"""An active lesson is retired when it brings no gain and the upper limit of the gain lies below this: a few dozen coins
often hide a gain that is there."""
CLOSED_BOOK_TRIALS = 24
"""Rollouts of the weights that were swapped in, guided and unguided, before the closed-book probe says anything."""
CLOSED_BOOK_MARGIN = 0.1
"""How much worse unguided rollouts may still be, at the lower limit, to be as good as guided ones."""
CLOSED_BOOK_FLOOR = 0.5
"""Success rate that unguided rollouts must exceed, at the lower limit: where neither knows, nothing was learnt."""


class LessonTrial(msgspec.Struct, frozen=True):
    """A sandbox rollout in brief."""

    id: str
    tenant: str
    goal: str
    ended: float
    succeeded: bool
    lessons: frozenset[str]
    version: int = -1
    """Oldest weights that sampled in it, -1 if that is not known."""


class Tally(msgspec.Struct, frozen=True):
    """Trials of a lesson: how many, and how many succeeded."""

    guided: tuple[int, int]
    unguided: tuple[int, int]

    @property
    def gain(self) -> float:
        """Difference of the success rates; 0 while one side has no trials."""
        if not self.trials:
            return 0.0
        return self.guided[1] / self.guided[0] - self.unguided[1] / self.unguided[0]

    @property
    def trials(self) -> int:
        """Of the side that has fewer."""
        return min(self.guided[0], self.unguided[0])

    @property
    def interval(self) -> Interval:
        """Newcombe's interval of the gain."""
        (guided, solved), (unguided, unaided) = self.guided, self.unguided
        return newcombe((solved, guided), (unaided, unguided), _CONFIDENCE)

    @property
    def unguided_low(self) -> float:
        """Wilson's lower limit of the unguided success rate."""
        return wilson(self.unguided[1], self.unguided[0], _CONFIDENCE)[0]


class Next(msgspec.Struct, frozen=True):
    """The state that a lesson should have, and why."""

    state: ExperienceState
    reason: str = ""


def read_trial(trajectory: Trajectory) -> LessonTrial | None:
    """`trajectory` as a trial; None if it is no finished sandbox rollout."""
    if trajectory.source != "sandbox" or trajectory.outcome is None:
        return None
    return LessonTrial(
        trajectory.id,
        trajectory.tenant,
        trajectory.goal,
        trajectory.ended,
        trajectory.outcome >= _SUCCESS,
        frozenset(trajectory.experience_ids),
        trajectory.min_version,
    )


def tally(
    lesson: Experience,
    newest_first: Iterable[LessonTrial],
    window: int,
    *,
    since_version: int = -1,
) -> Tally:
    """The newest `window` trials a side since the lesson's last change of state.

    Args:
        since_version: only trials whose every token was sampled by these weights or later ones.
    """
    guided: list[LessonTrial] = []
    unguided: list[LessonTrial] = []
    for trial in newest_first:
        if trial.tenant != lesson.tenant or trial.ended < lesson.updated or trial.version < since_version:
            continue
        if not about(lesson, trial.goal):
            continue
        if lesson.id in trial.lessons:
            guided.append(trial)
        elif not trial.lessons:
            unguided.append(trial)
    counts = [(len(side), sum(trial.succeeded for trial in side)) for side in (guided[:window], unguided[:window])]
    return Tally(counts[0], counts[1])


def about(lesson: Experience, goal: str) -> bool:
    """Whether `goal` is one that `lesson` speaks of: it names each of the lesson's words.

    A practice has one word. Words of free text are too many for that: such a lesson is tried where it was given, and
    compared with the unguided rollouts of all goals that share any of its longer words.
    """
    words = lesson.when_to_use.split()
    if len(words) == 1:
        return _speaks_of(goal, words[0])
    return any(_speaks_of(goal, word.strip(".,;:*")) for word in words if _tells(word.strip(".,;:*")))


def _tells(word: str) -> bool:
    return len(word) > 3 or not word.isascii()


def _speaks_of(goal: str, word: str) -> bool:
    """Scripts that put no blanks between words have it anywhere."""
    return mentions(goal, word) or (not word.isascii() and word.lower() in goal.lower())


def next_state(lesson: Experience, found: Tally) -> Next:
    """The state that `lesson` should have after the trials in `found`."""
    if lesson.state not in ("candidate", "active"):
        return Next(lesson.state, lesson.reason)
    gain = found.interval
    if found.trials >= HARM_TRIALS and gain.high < 0:
        return Next("retired", f"harmful: {_words(gain)}")
    if lesson.state == "candidate":
        if found.trials >= MIN_TRIALS:
            if gain.estimate >= MIN_GAIN and gain.low > 0:
                return Next("active", f"useful: {_words(gain)}")
            if found.trials >= MAX_TRIALS or gain.high < MIN_GAIN:
                return Next("retired", f"no gain: {_words(gain)}")
    elif found.trials >= RETIRE_TRIALS and gain.estimate <= 0 and gain.high < RETIRE_HIGH:
        known = as_good(found)
        return Next("retired", INTERNALISED if known else f"no gain: {_words(gain)}")
    return Next(lesson.state, lesson.reason)


def closed_book(lesson: Experience, found: Tally) -> Next:
    """Whether the weights know an active `lesson` without seeing it.

    Args:
        found: trials of the weights in question alone.
    """
    if lesson.state != "active" or found.trials < CLOSED_BOOK_TRIALS or not as_good(found):
        return Next(lesson.state, lesson.reason)
    return Next("retired", INTERNALISED)


def unlearnt(lesson: Experience, found: Tally) -> bool:
    """Whether unguided rollouts surely do worse than when `lesson` was retired as internalised."""
    if lesson.state != "retired" or lesson.reason != INTERNALISED or found.unguided[0] < CLOSED_BOOK_TRIALS:
        return False
    then, now = lesson.unguided, found.unguided
    return newcombe((now[1], now[0]), (then[1], then[0]), _CONFIDENCE).high < 0


def as_good(found: Tally) -> bool:
    """Whether unguided rollouts are as good as guided ones, and good at all."""
    if not found.trials or found.unguided_low <= CLOSED_BOOK_FLOOR:
        return False
    return found.interval.high < CLOSED_BOOK_MARGIN


def utility_bound(lesson: Experience) -> float:
    """Upper limit of the utility, -1 to 1, from the counters of the last revision: 1 while nothing is known."""
    (guided, won), (unguided, won_without) = lesson.guided, lesson.unguided
    if not guided or not unguided:
        return 1.0
    return newcombe((won, guided), (won_without, unguided), _CONFIDENCE).high


def window_of(lesson: Experience) -> int:
    """How many of the newest trials a side decide about `lesson`."""
    return RETIRE_TRIALS if lesson.state == "active" else MAX_TRIALS


def _words(gain: Interval) -> str:
    return f"{gain.estimate:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"

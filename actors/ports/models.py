"""What a model does for us: judges, graders, extractors, rewriters, task phrasing, embedders. Each is an adapter.

None of them is trusted: a judge abstains on what it cannot tell, a grader where it breaks down, and what an embedder
answers is checked before anything is done with it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from actors.messages import Attribution, Step, Task, ToolCall, Trajectory
from actors.ports.errors import AnswerRefused, WrongDimension

ACHIEVED = 0.6
"""From here on a grade says that the goal was reached."""
_ZERO = 1e-12


class Judge(Protocol):
    """Labels the steps of a trajectory GOOD, BAD or ABSTAIN, and sees what a tap sees: actions, observations and, if
    somebody reported it, the outcome."""

    name: str
    """Stands in `Attribution.judge`."""
    rubric: str
    """Version of the rules or of the prompt; labels of different rubrics are not comparable."""

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step, in order. What cannot be told is ABSTAIN: the learner masks it. ModelUnavailable: it cannot
        be reached for now; asking again later is worth it."""
        ...


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What a grader says of one attempt."""

    score: float | None = None
    """0 to 1; None: it abstains, and nothing may be learned from this attempt's outcome."""
    reason: str = ""
    tokens: int = 0
    """LLM tokens that it cost."""
    cost: float = 0.0
    """Money that it cost, in the currency of the endpoint's price list."""

    @property
    def achieved(self) -> bool:
        return self.score is not None and self.score >= ACHIEVED


class Grader(Protocol):
    """Says how well an attempt at a task went, where no verifier of the environment can say it by itself."""

    name: str

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        """The grade of `steps` as an attempt at `task.goal`; lessons that stood in the prompt are not part of either.

        Where the judge is away or answers garbage it abstains, and says why: a 0 would be a failure that the policy did
        not make.

        Args:
            reference: calls that are known to reach the goal; other ways are as good. Empty if none are known.
        """
        ...


def needs_reference(grader: Grader) -> bool:
    """Whether `grader` abstains wherever no reference is known; one of your own has an attribute of this name."""
    return bool(getattr(grader, "needs_reference", False))


class Insight(msgspec.Struct, frozen=True):
    """A lesson in free words."""

    when_to_use: str
    """One line: for what kind of goal."""
    content: str
    """What to do, or not to do."""


class Extractor(Protocol):
    """Draws lessons from trajectories. They are opinions: candidates, never active at once, and quarantined while all
    come from a single agent key's trajectories."""

    name: str
    """With the model's name: the `origin` of its lessons."""

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        """The lessons of trajectories with similar goals; not both sides are empty. No lesson is a good answer.
        ModelUnavailable: no answer in time, or the budget is spent: ask again later."""
        ...


class Rewriter(Protocol):
    """Puts a lesson into words that fit the case at hand."""

    async def rewrite(self, content: str, goal: str, step: str) -> str:
        """`content`, as it should be said to whoever has `goal` and last saw `step`. ModelError: no answer in time,
        or one that cannot be used; the lesson is then given as it is."""
        ...


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was executed and needs words."""

    goal: str
    """What the templates made of it."""
    calls: tuple[tuple[str, dict[str, Any]], ...]
    """Tool and arguments of the reference, in order."""
    descriptions: dict[str, str]
    """What the tools say of themselves, by name."""
    told: tuple[str, ...]
    """Values that the goal must name: nobody can find them out."""
    hidden: tuple[str, ...]
    """Values that it must not name: finding them out is the task."""
    changed: dict[str, Any]
    """What the reference changes: state keys with their new value."""
    style: str = ""


class TaskPhrasing(Protocol):
    """Says a task the way that somebody who wants it done would."""

    async def word(self, draft: Draft) -> str:
        """A goal for `draft`, in one paragraph. What it says is checked by the caller. ModelError: no usable answer;
        the template's words will do."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their likeness."""

    id: str
    """Names the model and all that decides what its vectors are; vectors are kept under it. Changes with the model."""
    dimension: int
    """`d`, the same for every call; 0 until the first answer, if only that tells."""

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of `texts`, `(n, d)` float32, each of Euclidean length 1; `(0, d)` for no texts. The same text always
        gives the same vector, whatever it is embedded with. ModelUnavailable: no answer in time; AnswerRefused: one
        that cannot be used (`checked`)."""
        ...


def words_alone(embedder: Embedder) -> bool:
    """Whether its vectors see no more than words do: then what finds by words does better without them."""
    return embedder.id.startswith("hashing")


def checked(vectors: npt.ArrayLike, count: int, dimension: int | None) -> npt.NDArray[np.float32]:
    """`vectors` as float32 `(count, dimension)`, each of Euclidean length 1. WrongDimension: another length than
    `dimension`, or than each other's; AnswerRefused: no numbers, not one for each text, or one without direction."""
    try:
        rows = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):
            raise WrongDimension("the vectors differ in length") from error
        raise AnswerRefused(f"the answer is no array of numbers: {error}") from error
    if rows.ndim != 2 or len(rows) != count:
        raise AnswerRefused(f"{count} texts gave an answer of shape {rows.shape}; one vector a text is needed")
    if rows.shape[1] == 0 or (dimension is not None and count and rows.shape[1] != dimension):
        raise WrongDimension(f"vectors of {rows.shape[1]} dimensions, {dimension} expected: another model answers")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unfit = ~np.isfinite(rows).all(axis=1) | (lengths[:, 0] < _ZERO)
    if unfit.any():
        raise AnswerRefused(f"{int(unfit.sum())} of {count} vectors are zero, or hold NaN or infinity")
    return np.ascontiguousarray(rows / lengths, dtype=np.float32)

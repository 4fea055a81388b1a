"""Turns to token rows: a turn extends a row if its prompt begins with exactly the ids of the row, else one begins.

Nothing is ever re-tokenized: prompt ids are the engine's own rendering, the others are those it sampled. So whatever a
context template makes of the history, each token is trained on behind exactly the ids that it was sampled behind.
"""

from collections.abc import Sequence

from actors.messages import TokenRow, pack_array
from actors.rollout.harness.completion import Completion
from actors.rollout.harness.errors import EpisodeLost

MOVED = "the lesson moved between turns"
Span = tuple[int, int]


def hint_span(plain: Sequence[int], guided: Sequence[int]) -> Span:
    """Where `guided` has ids that `plain` has not, as one half-open span: cut out, it gives `plain` exactly.

    Raises:
        EpisodeLost: there is no such span; the lesson changed how its surroundings are tokenized.
    """
    longer = len(guided) - len(plain)
    start = 0
    while start < len(plain) and start < len(guided) and plain[start] == guided[start]:
        start += 1
    if longer <= 0 or list(guided[start + longer :]) != list(plain[start:]):
        raise EpisodeLost("hint_not_separable", f"openings of {len(plain)} and {len(guided)} ids")
    return start, start + longer


class Rows:
    """Collects the turns of an episode.

    Args:
        temperature: that all of them were sampled at.
    """

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature
        self._ids: list[list[int]] = []
        self._steps: list[list[int]] = []
        self._logprobs: list[list[float]] = []
        self._versions: list[list[int]] = []
        self._hints: list[Span] = []
        self.min_version = -1
        """Oldest version that sampled a token, -1 if unknown."""
        self.max_version = -1
        """Newest version that sampled a token, -1 if unknown."""

    def home(self, prompt: Sequence[int]) -> int:
        """Index of the row that `prompt` extends; -1 if it begins one.

        The newest is tried first; then the longest, for histories that go back to an earlier state, and for loops that
        hold several conversations at once.
        """
        last = len(self._ids) - 1
        if last >= 0 and prompt[: len(self._ids[last])] == self._ids[last]:
            return last
        fitting = [at for at, ids in enumerate(self._ids) if prompt[: len(ids)] == ids]
        return max(fitting, key=lambda at: len(self._ids[at]), default=-1)

    def add(self, turn: Completion, step: int, hint: Span = (0, 0)) -> int:
        """Take in a turn; index of the row that it went to.

        Args:
            hint: span of the lesson in the turn's prompt; of interest if the turn begins a row.
        """
        oldest = min(turn.versions)
        self.min_version = min(self.min_version, oldest) if self._ids else oldest
        self.max_version = max(self.max_version, *turn.versions)
        at = self.home(turn.prompt)
        if at < 0:
            at = len(self._ids)
            for columns in (self._ids, self._steps, self._logprobs, self._versions):
                columns.append([])
            self._hints.append(hint)
        context = turn.prompt[len(self._ids[at]) :]
        self._ids[at] += [*context, *turn.ids]
        self._steps[at] += [-1] * len(context) + [step] * len(turn.ids)
        self._logprobs[at] += [0.0] * len(context) + turn.logprobs
        self._versions[at] += [-1] * len(context) + turn.versions
        return at

    @property
    def unversioned(self) -> bool:
        """Whether some sampled token has no version."""
        return bool(self._ids) and self.min_version < 0

    def assume(self, version: int) -> None:
        """All sampled tokens are of `version`."""
        self._versions = [[version if step >= 0 else -1 for step in steps] for steps in self._steps]
        self.min_version = self.max_version = version

    def pack(self, why_not: str = "") -> tuple[tuple[TokenRow, ...], str]:
        """The rows, and why they must not be trained on: `why_not` if there is something already."""
        if not why_not and self._temperature <= 0:
            why_not = "greedy"
        if not why_not and self.unversioned:
            why_not = "no weight versions"
        rows = tuple(
            TokenRow(
                ids=pack_array(ids, "<i4"),
                step=pack_array(steps, "<i2"),
                logprobs=pack_array(logprobs, "<f4"),
                versions=pack_array(versions, "<i4"),
                hint=hint,
                temperature=self._temperature,
            )
            for ids, steps, logprobs, versions, hint in zip(
                self._ids, self._steps, self._logprobs, self._versions, self._hints, strict=True
            )
        )
        return rows, why_not

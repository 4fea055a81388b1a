"""Turns of an episode to token rows (`actors.messages.rows`), whatever a template makes of the history."""

from collections.abc import Sequence

from actors.messages import Processing, Sampled, TokenRow, continues, extended, of_version, pack_array
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.completion import Completion

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
        self._rows: list[TokenRow] = []
        self.min_version = -1
        """Oldest version that sampled a token, -1 if unknown."""
        self.max_version = -1
        """Newest version that sampled a token, -1 if unknown."""

    def add(self, turn: Completion, step: int, hint: Span = (0, 0), *, grammar: bool = False) -> int:
        """Take in a turn; index of the row that it went to.

        Args:
            hint: span of the lesson in the turn's prompt; of interest if the turn begins a row.
            grammar: as in `Processing`.
        """
        oldest = min(turn.versions)
        self.min_version = min(self.min_version, oldest) if self._rows else oldest
        self.max_version = max(self.max_version, *turn.versions)
        prompt = pack_array(turn.prompt, "<i4")
        at = self._home(prompt)
        processing = Processing(grammar=grammar)
        if at < 0 or self._rows[at].processing != processing:
            at = len(self._rows)
            self._rows.append(TokenRow(temperature=self._temperature, hint=hint, processing=processing))
        ids, logprobs = pack_array(turn.ids, "<i4"), pack_array(turn.logprobs, "<f4")
        versions = pack_array(turn.versions, "<i4")
        sampled = Sampled(prompt_ids=prompt, response_ids=ids, logprobs=logprobs, versions=versions)
        self._rows[at] = extended(self._rows[at], step, sampled)
        return at

    @property
    def unversioned(self) -> bool:
        """Whether some sampled token has no version."""
        return bool(self._rows) and self.min_version < 0

    def assume(self, version: int) -> None:
        """All sampled tokens are of `version`."""
        self._rows = [of_version(row, version) for row in self._rows]
        self.min_version = self.max_version = version

    def pack(self, why_not: str = "") -> tuple[tuple[TokenRow, ...], str]:
        """The rows, and why they must not be trained on: `why_not` if there is something already."""
        if not why_not and self._temperature <= 0:
            why_not = "greedy"
        if not why_not and self.unversioned:
            why_not = "no weight versions"
        return tuple(self._rows), why_not

    def _home(self, prompt: bytes) -> int:
        """Index of the row that `prompt` continues; -1 if it begins one.

        The newest is tried first; then the longest, for histories that go back to an earlier state, and for loops that
        hold several conversations at once.
        """
        last = len(self._rows) - 1
        if last >= 0 and continues(self._rows[last], prompt):
            return last
        fitting = [at for at, row in enumerate(self._rows) if continues(row, prompt)]
        return max(fitting, key=lambda at: len(self._rows[at].ids), default=-1)

"""The port of judges that compare: which of two answers to the same request would one rather have?

The gate asks one about answers of candidate and incumbent to recent production prompts. It must not be the judge whose
labels the candidate was trained on: a policy that learned to please its judge pleases it here too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from actors.ports.answers import Answer


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, redacted as it is stored."""

    messages: Sequence[Mapping[str, Any]]
    """In OpenAI's form."""
    tools: Sequence[Mapping[str, Any]] = ()


class PreferenceJudge(Protocol):
    """Compares two answers."""

    name: str
    """Registered name; the gate refuses to work with the judge of the rewards."""
    rubric: str
    """Version of the rules or of the prompt; preferences of different rubrics are not comparable."""

    async def prefer(self, request: Request, first: Answer, second: Answer) -> float | None:
        """1.0 for `first`, 0.0 for `second`, 0.5 for neither, or between; None if it abstains.

        Swapped arguments must give the mirrored answer: a judge that favours a position asks itself both ways.

        Raises:
            JudgeUnavailable: the judge cannot be reached for now.
        """
        ...

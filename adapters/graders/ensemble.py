"""`EnsembleGrader`: several graders; the grade is what enough of them agree on.

Members that abstain are left out. Those that say "reached" and those that say "not reached" are two camps: the larger
one's mean is the grade, if it is at least the quorum; else the ensemble abstains. A mean over both camps would lie
where no member's score may.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from actors.messages import Step, Task, ToolCall
from actors.ports.models import Grade, Grader, needs_reference
from adapters.chat.settings import settings_of
from adapters.named import adapter_named


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of them."""

    grader: str
    """Its registered name, such as "anchored"."""
    options: dict[str, Any] = {}


class EnsembleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the grader "ensemble"."""

    members: tuple[Member, ...]
    quorum: int = 0
    """Members that must agree; 0 for more than half of them."""
    timeout: float = 120.0
    """Seconds that a member is waited for."""

    def __post_init__(self) -> None:
        if len(self.members) < 2 or not 0 <= self.quorum <= len(self.members) or not self.timeout > 0:
            raise ValueError("members must be two or more, quorum at most their number, and timeout above 0")


class EnsembleGrader:
    """A `Grader`; `aclose()` at the end.

    Args:
        quorum: how many must agree.
        timeout: seconds that a member is waited for; then it abstains.
    """

    name = "ensemble"

    def __init__(self, members: Sequence[Grader], *, quorum: int, timeout: float) -> None:
        self._members, self._quorum, self._timeout = members, quorum, timeout
        self.needs_reference = sum(not needs_reference(one) for one in members) < quorum
        self.counts: Counter[str] = Counter()
        """`agreed`, `disagreed`, `short` (too few had a word), and `late_NAME`, `failed_NAME` of members."""

    async def aclose(self) -> None:
        """Close the members."""
        for member in self._members:
            close: Any = getattr(member, "aclose", None)
            if close is not None:
                await close()

    async def grade(
        self,
        task: Task,
        steps: Sequence[Step],
        *,
        reference: Sequence[ToolCall] = (),
    ) -> Grade:
        grades: list[Grade] = [Grade()] * len(self._members)

        async def ask(index: int, member: Grader) -> None:
            with anyio.move_on_after(self._timeout) as scope:
                try:
                    grades[index] = await member.grade(task, steps, reference=reference)
                # Members may be of any origin; one that breaks must not take the others' grades along.
                except Exception as error:
                    self.counts[f"failed_{member.name}"] += 1
                    grades[index] = Grade(reason=type(error).__name__)
            if scope.cancelled_caught:
                self.counts[f"late_{member.name}"] += 1

        async with anyio.create_task_group() as group:
            for index, member in enumerate(self._members):
                group.start_soon(ask, index, member)
        return self._agreed(grades)

    def _agreed(self, grades: Sequence[Grade]) -> Grade:
        said = [(member.name, one) for member, one in zip(self._members, grades, strict=True) if one.score is not None]
        camps = [[one for _, one in said if one.achieved is reached] for reached in (True, False)]
        larger = max(camps, key=len)
        words = "; ".join(f"{name} {one.score:.2f}: {one.reason}" for name, one in said)
        tokens, cost = sum(one.tokens for one in grades), sum(one.cost for one in grades)
        if len(larger) < self._quorum or len(camps[0]) == len(camps[1]):
            self.counts["disagreed" if all(camps) else "short"] += 1
            return Grade(reason=f"no {self._quorum} agree; {words}"[:200], tokens=tokens, cost=cost)
        self.counts["agreed"] += 1
        score = sum(one.score or 0.0 for one in larger) / len(larger)
        reason = f"{len(larger)} of {len(grades)}; {words}"[:200]
        return Grade(score=score, reason=reason, tokens=tokens, cost=cost)


def make(**options: Any) -> EnsembleGrader:
    """The ensemble that `options`, `EnsembleSettings`, describe.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    told = settings_of(EnsembleSettings, options)
    members = [adapter_named("grader", member.grader, member.options) for member in told.members]
    return EnsembleGrader(members, quorum=told.quorum or len(members) // 2 + 1, timeout=told.timeout)

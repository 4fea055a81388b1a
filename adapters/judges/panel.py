"""`PanelJudge`: several judges vote on every step, and a step on which too few agree abstains.

All members are asked at once. A member that abstains, fails or is away has no vote, and the quorum does not fall with
it: a panel with gaps says less, it never says what fewer judges agree on. Only if so many are away that no step could
reach the quorum is the panel away itself.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import structlog

from actors.messages import Attribution, Label, StepLabel, Trajectory
from actors.ports.errors import AdapterNotSetUp, ModelUnavailable
from actors.ports.models import Judge
from adapters.chat.settings import settings_of
from adapters.named import adapter_named

_log = structlog.get_logger(__name__)


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One judge of the panel."""

    judge: str
    """As registered, such as "rules" or "llm"."""
    options: dict[str, Any] = {}


class PanelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the judge "panel"."""

    members: list[MemberSettings]
    quorum: int = 0
    """Equal votes that a label needs; 0: more than half of the members. All of them: unanimity."""
    timeout: float = 110.0
    """Seconds after which a member counts as away; keep it below the attributor's 120 s."""


class PanelJudge:
    """A `Judge` of judges.

    Args:
        quorum: equal votes that a label needs, 0 for more than half of the members.
        timeout: seconds after which a member counts as away.
    """

    name = "panel"

    def __init__(self, members: Sequence[Judge], *, quorum: int = 0, timeout: float = 110.0) -> None:
        names = [member.name for member in members]
        if len(members) < 2 or len(set(names)) < len(names):
            raise AdapterNotSetUp(f"a panel needs two members or more with different names, not {', '.join(names)}")
        quorum = quorum or len(members) // 2 + 1
        if not len(members) / 2 < quorum <= len(members):
            raise AdapterNotSetUp(f"quorum = {quorum}: more than half of {len(members)} members, and at most all")
        if not timeout > 0:
            raise AdapterNotSetUp("timeout must be above 0 seconds")
        self._members, self._quorum, self._timeout = tuple(members), quorum, timeout
        self.rubric = self._rubric([member.rubric for member in members])
        self._own: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        """`agreed`, `disagreed` (both GOOD and BAD were said, no quorum), `short` (too few said anything), steps each;
        `away_NAME` and `failed_NAME`, judgements; and what the members count, as `NAME.reason`."""
        found = Counter(self._own)
        for member in self._members:
            inner: Any = getattr(member, "counts", {})
            found.update({f"{member.name}.{reason}": number for reason, number in inner.items()})
        return found

    async def aclose(self) -> None:
        """Close what the members hold."""
        for member in self._members:
            close = getattr(member, "aclose", None)
            if close is not None:
                await close()

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step.

        Raises:
            ModelUnavailable: so many members are away that no quorum is left.
        """
        answers: list[Attribution | None] = [None] * len(self._members)
        away: dict[int, ModelUnavailable] = {}

        async def ask(index: int, member: Judge) -> None:
            with anyio.move_on_after(self._timeout) as scope:
                try:
                    found = await member.label(trajectory)
                    if len(found.labels) == len(trajectory.steps):
                        answers[index] = found
                    else:
                        self._own[f"failed_{member.name}"] += 1
                except ModelUnavailable as error:
                    away[index] = error
                # Members may be of any origin; one that breaks must not take the others' votes along.
                except Exception as error:
                    self._own[f"failed_{member.name}"] += 1
                    _log.warning("member_failed", member=member.name, error=f"{type(error).__name__}: {error}"[:200])
            if scope.cancelled_caught:
                away[index] = ModelUnavailable(f"{member.name}: no answer within {self._timeout:g} s")

        async with anyio.create_task_group() as group:
            for index, member in enumerate(self._members):
                group.start_soon(ask, index, member)
        for index in away:
            self._own[f"away_{self._members[index].name}"] += 1
        if away and len(self._members) - len(away) < self._quorum:
            raise ModelUnavailable("; ".join(str(error) for error in away.values()))
        return self._voted(trajectory, answers)

    def _voted(self, trajectory: Trajectory, answers: Sequence[Attribution | None]) -> Attribution:
        given = [answer for answer in answers if answer is not None]
        self.rubric = self._rubric(
            [answer.rubric if answer else member.rubric for answer, member in zip(answers, self._members, strict=True)]
        )
        hashes = ":".join(answer.prompt_hash for answer in given)
        return Attribution(
            labels=tuple(self._vote(answers, number) for number in range(len(trajectory.steps))),
            judge=self.name,
            rubric=self.rubric,
            prompt_hash=hashlib.sha256(hashes.encode()).hexdigest() if hashes.strip(":") else "",
            tokens=sum(answer.tokens for answer in given),
            cost=sum(answer.cost for answer in given),
        )

    def _vote(self, answers: Sequence[Attribution | None], number: int) -> StepLabel:
        said = [
            (member.name, answer.labels[number])
            for member, answer in zip(self._members, answers, strict=True)
            if answer is not None and answer.labels[number].label != "ABSTAIN"
        ]
        votes: Counter[Label] = Counter(label.label for _, label in said)
        opinions = "; ".join(f"{name} {label.label}: {label.reason}" for name, label in said)
        for label, number_of in votes.items():
            if number_of >= self._quorum:
                self._own["agreed"] += 1
                sure = sum(one.confidence for _, one in said if one.label == label) / len(said)
                reason = f"{number_of} of {len(self._members)}; {opinions}"
                return StepLabel(label, sure, reason[:200])
        self._own["disagreed" if len(votes) > 1 else "short"] += 1
        return StepLabel("ABSTAIN", 0.0, (f"no {self._quorum} agree; {opinions}")[:200])

    def _rubric(self, rubrics: Sequence[str]) -> str:
        named = (f"{member.name} {rubric}" for member, rubric in zip(self._members, rubrics, strict=True))
        return f"panel-1({self._quorum} of {'; '.join(named)})"


def make(**options: Any) -> PanelJudge:
    """The panel that `[judge.options]` describes.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    told = settings_of(PanelOptions, options)
    members = [adapter_named("judge", member.judge, member.options) for member in told.members]
    return PanelJudge(members, quorum=told.quorum, timeout=told.timeout)

"""`VerifiedJudge`: what can be checked outranks what a judge thinks, and the reason says so.

Evidence, the first that applies decides:

1. Schema: arguments that are no JSON object or do not fit the tool's schema, or a tool that was not offered: BAD.
2. Tool errors: every result of the step says that the call failed (`actors.ports.tool_answers`): BAD. That an answer
   is fine shows only that the tool ran; a command that ended with 1 may just have said no, as `grep` does.
3. User edits: the user's next turn is the agent's text with changes: BAD.
4. Environment's verdict: the last step's answer is GOOD in a success, BAD in a failure, if the run was not cut off.

Evidence is mostly against: that a call worked does not show that it was needed. What nothing shows stays opinion.
"""

import difflib
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from actors.messages import Attribution, Step, StepLabel, Trajectory
from actors.ports.models import Judge
from actors.ports.parsed_calls import fault, offered
from actors.ports.tool_answers.reader import documents, failed
from adapters.chat.settings import settings_of
from adapters.judges.rules import SUCCESS
from adapters.named import adapter_named

_EDIT = (40, 4000)
"""Characters of a text that a user can be said to have edited; below, likeness is chance, above it costs too much."""
_ALIKE = 0.75


class VerifiedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the judge "verified"."""

    judge: str = "rules"
    """Whose opinion counts where there is no evidence, as registered."""
    options: dict[str, Any] = {}
    """Its options."""


class VerifiedJudge:
    """A `Judge` around another one."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.name = f"verified-{judge.name}"
        self.rubric = f"verified-1({judge.rubric})"
        self._own: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        """`confirmed`, `overruled` and `told` (the judge abstained): steps with evidence; and what the judge counts."""
        inner: Any = getattr(self._judge, "counts", {})
        return Counter(inner) + self._own

    async def aclose(self) -> None:
        """Close what the judge holds."""
        close = getattr(self._judge, "aclose", None)
        if close is not None:
            await close()

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step.

        Raises:
            ModelUnavailable: the judge is away; evidence waits for it, so that a trajectory is judged once.
        """
        opinion = await self._judge.label(trajectory)
        self.rubric = f"verified-1({opinion.rubric})"
        if len(opinion.labels) == len(trajectory.steps):
            known = evidence(trajectory)
            labels = tuple(self._weigh(label, known.get(number)) for number, label in enumerate(opinion.labels))
        else:
            labels = opinion.labels  # whoever asked sees that something is wrong, and counts it
        return msgspec.structs.replace(opinion, labels=labels, judge=self.name, rubric=self.rubric)

    def _weigh(self, opinion: StepLabel, known: StepLabel | None) -> StepLabel:
        if known is None:
            return opinion
        if opinion.label == known.label:
            self._own["confirmed"] += 1
            reason = f"verified: {known.reason}; {opinion.reason}"
            return StepLabel(known.label, max(known.confidence, opinion.confidence), reason[:200])
        self._own["told" if opinion.label == "ABSTAIN" else "overruled"] += 1
        reason = f"verified: {known.reason}; the judge said {opinion.label}: {opinion.reason}"
        return StepLabel(known.label, known.confidence, reason[:200])


def evidence(trajectory: Trajectory) -> Mapping[int, StepLabel]:
    """What is known of steps without any judge, by step from 0."""
    schemas = offered(trajectory.tools)
    found: dict[int, StepLabel] = {}
    for number, step in enumerate(trajectory.steps):
        label = _schema_error(step, schemas) or _error(step) or _edited(step)
        if label is not None:
            found[number] = label
    last = len(trajectory.steps) - 1
    ended = trajectory.closed_by != "limit" and last >= 0 and not documents(trajectory.steps[last].observation)
    if ended and last not in found and trajectory.outcome is not None and math.isfinite(trajectory.outcome):
        succeeded = trajectory.outcome >= SUCCESS
        found[last] = (
            StepLabel("GOOD", 1.0, "the run succeeded with it") if succeeded
            else StepLabel("BAD", 0.8, "the run failed with it")
        )  # fmt: skip
    return found


def _schema_error(step: Step, schemas: Mapping[str, Any]) -> StepLabel | None:
    wrong = next(filter(None, (fault(call, schemas) for call in step.tool_calls)), None)
    return StepLabel("BAD", 1.0, wrong) if wrong else None


def _error(step: Step) -> StepLabel | None:
    if not step.tool_calls:
        return None  # what came back is the user's word, who may quote an error
    results = documents(step.observation)
    return StepLabel("BAD", 0.95, "every result is an error") if results and all(map(failed, results)) else None


def _edited(step: Step) -> StepLabel | None:
    """The user took the agent's text and wrote it anew; quoting it as it is, with words around it, is no edit."""
    given, back = step.text.strip(), step.observation.strip()
    if step.tool_calls or given in back or not all(_EDIT[0] <= len(text) <= _EDIT[1] for text in (given, back)):
        return None
    matcher = difflib.SequenceMatcher(None, given.split(), back.split(), autojunk=False)
    if matcher.quick_ratio() < _ALIKE or matcher.ratio() < _ALIKE:
        return None
    return StepLabel("BAD", 0.7, "the user rewrote it")


def make(**options: Any) -> VerifiedJudge:
    """The judge that `[judge.options]` describes, under evidence.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    told = settings_of(VerifiedOptions, options)
    return VerifiedJudge(adapter_named("judge", told.judge, told.options))

"""An LLM judge's answer read strictly: what it does not say beyond doubt, it did not say.

Tolerated is what `bare` takes off. Everything else abstains: prose around the object, a wrong mark, a number outside of
what was asked for (it may count from another number, and then every label is another step's).
"""

from collections import Counter
from typing import Any, Literal

import msgspec

from actors.messages import StepLabel
from adapters.chat.quoting import visible
from adapters.chat.reading import bare

Problem = Literal["unparsable", "truncated", "wrong_mark", "misnumbered", "missing", "duplicate", "malformed"]

_REASON = 200
_LABELS = ("GOOD", "BAD", "ABSTAIN")


class _Answer(msgspec.Struct):
    mark: str
    steps: list[Any]


class Reading(msgspec.Struct, frozen=True):
    """What could be read."""

    labels: dict[int, StepLabel]
    """By step, from 0; every step that was asked for is here."""
    problems: Counter[Problem]
    """What was wrong: per answer `unparsable`, `truncated`, `wrong_mark`, `misnumbered`; per step the others."""


def read(content: str, *, numbers: range, mark: str, truncated: bool = False) -> Reading:
    """The labels of the steps `numbers` (from 0) in `content`.

    Args:
        mark: that the call had.
        truncated: the answer ran into its limit of tokens.
    """
    try:
        answer = msgspec.json.decode(bare(content), type=_Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return nothing(numbers, "truncated" if truncated else "unparsable")
    if answer.mark != mark:
        return nothing(numbers, "wrong_mark")
    said = [_number(entry) for entry in answer.steps]
    if any(number is not None and number not in numbers for number in said):
        return nothing(numbers, "misnumbered")
    problems: Counter[Problem] = Counter({"malformed": said.count(None)}) if None in said else Counter()
    labels: dict[int, StepLabel] = {}
    for number in numbers:
        entries = [entry for entry, own in zip(answer.steps, said, strict=True) if own == number]
        found: StepLabel | Problem = "duplicate" if len(entries) > 1 else _label(entries[0]) if entries else "missing"
        if isinstance(found, str):
            problems[found] += 1
            found = abstention(found)
        labels[number] = found
    return Reading(labels, problems)


def nothing(numbers: range, problem: Problem) -> Reading:
    """No label can be taken from the answer."""
    return Reading(dict.fromkeys(numbers, abstention(problem)), Counter({problem: 1}))


def abstention(problem: str) -> StepLabel:
    """The label of a step on which the judge gave no word that can be used."""
    return StepLabel("ABSTAIN", 0.0, f"no answer: {problem}")


def _number(entry: Any) -> int | None:
    """The step, from 0, that an entry is about."""
    number = entry.get("step") if isinstance(entry, dict) else None
    return number - 1 if isinstance(number, int) and not isinstance(number, bool) else None


def _label(entry: dict[str, Any]) -> StepLabel | Literal["malformed"]:
    label, confidence, reason = entry.get("label"), entry.get("confidence"), entry.get("reason", "")
    if label not in _LABELS or not isinstance(reason, str):
        return "malformed"
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0.0 <= confidence <= 1.0:
        return "malformed"
    return StepLabel(label, float(confidence), visible(reason[: 2 * _REASON])[:_REASON])

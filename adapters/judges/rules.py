"""`RulesJudge`: step credit from what a tap sees, without any LLM and without knowing the environment.

The evidence is the flow of values. A call that returns something new, which a later call that works takes as an
argument, was needed by it; a chain of such calls is how tool agents make progress. On the other side stand errors,
calls that cannot be read, and calls repeated for the same answer.

Rules, in this order; the first that applies decides:

1. BAD: a call that cannot be read, or of a tool that the request did not offer; a turn with neither call nor text.
2. BAD: every result of the step is an error. Some of several: ABSTAIN.
3. BAD: the same call (name and arguments) was made before and gave the same answer.
4. The final answer (nothing came back): GOOD if the trajectory succeeded, BAD if it failed, ABSTAIN if nobody said so
   or the run was cut off.
5. GOOD: this step was the first to return a value that a later step that worked used. In a failed trajectory only if
   the step's own arguments came from the goal or from earlier results: a guess that leads on looks like progress too.
6. GOOD: a call that was refused before this step works after it, and both speak of the same thing.
7. GOOD, with less confidence, in a successful trajectory: the step worked on values that earlier steps had found. So
   shows an effect (an order cancelled) that nobody reads afterwards. Distractors can look like this as well.
8. Otherwise ABSTAIN. In a failed trajectory these are the steps that worked and led to nothing visible. Such a step may
   have been right and wasted by what followed, or be the very mistake; no rule can tell, and a guess would teach.
"""

from collections.abc import Sequence

import msgspec

from actors.messages import Attribution, Step, StepLabel, Trajectory
from actors.ports.parsed_calls import ParsedCall, offered, read_call
from adapters.judges.evidence import failures, found_values, values_of, words

SUCCESS = 0.5
"""An outcome of at least this much is a success."""
_CALL_TAG = "<tool_call"


class _Deed(msgspec.Struct):
    """A step with what could be read from it."""

    calls: tuple[ParsedCall, ...]
    wrong: int
    """Results that are errors."""
    results: int
    asked: set[str]
    """Informative values among the arguments, or the words of an answer in plain text."""
    found: set[str] = msgspec.field(default_factory=set[str])
    """Values that it was the first to return."""
    obtained: set[str] = msgspec.field(default_factory=set[str])
    """Values that it used and that an earlier step had returned."""
    guessed: bool = False
    """It used a value that neither the goal nor any earlier result had."""
    final: bool = False
    worked: bool = False
    needed_by: list[int] = msgspec.field(default_factory=list[int])
    """Later steps that worked with what it found."""

    def same_calls(self, other: "_Deed") -> bool:
        return [call.key for call in self.calls] == [call.key for call in other.calls]


class RulesJudge:
    """A `Judge` that follows the rules above; pure, immediate, the same answer every time."""

    name = "rules"
    rubric = "rules-1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step; never raises `ModelUnavailable`."""
        return Attribution(labels=judge(trajectory), judge=self.name, rubric=self.rubric)


def judge(trajectory: Trajectory) -> tuple[StepLabel, ...]:
    """The labels of `trajectory`'s steps, in order."""
    outcome = trajectory.outcome
    succeeded = None if outcome is None else outcome >= SUCCESS
    known = set(offered(trajectory.tools))
    deeds = _trace(trajectory, succeeded is True)
    return tuple(_label(index, trajectory.steps, deeds, known, succeeded) for index in range(len(trajectory.steps)))


def _label(
    index: int, steps: Sequence[Step], deeds: Sequence[_Deed], known: set[str], succeeded: bool | None
) -> StepLabel:
    step, deed = steps[index], deeds[index]
    fault = _malformed(step, deed, known)
    if fault:
        return StepLabel("BAD", 1.0, fault)
    if deed.wrong:
        return (
            StepLabel("BAD", 0.95, "error") if deed.wrong == deed.results else StepLabel("ABSTAIN", 0.5, "partly error")
        )
    before = next((i for i in range(index) if _repeats(steps, deeds, i, index)), None)
    if before is not None:
        return StepLabel("BAD", 0.9, f"repeats step {before + 1} for the same answer")
    if deed.final:
        if succeeded is None:
            return StepLabel("ABSTAIN", 0.5, "final answer, outcome unknown")
        return (
            StepLabel("GOOD", 1.0, "final answer") if succeeded else StepLabel("BAD", 0.8, "final answer of a failure")
        )
    if deed.needed_by and (succeeded or not deed.guessed):
        return StepLabel("GOOD", 0.9 if succeeded else 0.8, f"its result is used by step {deed.needed_by[0] + 1}")
    enabled = _enabled(index, deeds)
    if enabled is not None:
        return StepLabel("GOOD", 0.8, f"step {enabled + 1} works now, it was refused before")
    if succeeded and deed.worked and deed.obtained:
        return StepLabel("GOOD", 0.7, "worked on what earlier steps had found")
    return StepLabel("ABSTAIN", 0.5, "no evidence")


def _trace(trajectory: Trajectory, succeeded: bool) -> list[_Deed]:
    """The steps read in order, with where each value came from and where it went."""
    origin: dict[str, int] = dict.fromkeys(words(trajectory.goal), -1)
    answered: set[str] = set()
    deeds: list[_Deed] = []
    last = len(trajectory.steps) - 1
    for index, step in enumerate(trajectory.steps):
        calls = tuple(map(read_call, step.tool_calls))
        wrong, results = failures(step)
        asked: set[str] = set().union(*(values_of(call) for call in calls)) if calls else words(step.text)
        deed = _Deed(calls, wrong, results, asked)
        names = {call.name for call in calls}
        # A tool that has answered before is no way to end: the run was cut off in the middle of its work.
        deed.final = index == last and not results and not names & answered and trajectory.closed_by != "limit"
        deed.worked = not wrong and (succeeded or not deed.final)
        deed.guessed = bool(calls) and any(value not in origin and value not in trajectory.goal for value in asked)
        deed.obtained = {value for value in asked if origin.get(value, -1) >= 0}
        if deed.worked:
            for source in {origin[value] for value in deed.obtained}:
                deeds[source].needed_by.append(index)
        for value in found_values(step.observation):
            if value not in origin:
                origin[value] = index
                deed.found.add(value)
        if results:
            answered |= names
        deeds.append(deed)
    return deeds


def _malformed(step: Step, deed: _Deed, known: set[str]) -> str:
    """What is wrong with the form of `step`, empty if nothing is."""
    for call in deed.calls:
        if call.arguments is None:
            return "arguments are no JSON object"
        if known and call.name not in known:
            return "no such tool"
    if not deed.calls and (not step.text.strip() or _CALL_TAG in step.text):
        return "no readable call"
    return ""


def _repeats(steps: Sequence[Step], deeds: Sequence[_Deed], earlier: int, later: int) -> bool:
    return (
        bool(deeds[later].calls)
        and deeds[earlier].same_calls(deeds[later])
        and steps[earlier].observation == steps[later].observation
    )


def _enabled(index: int, deeds: Sequence[_Deed]) -> int | None:
    """The later step whose call had been refused before step `index` and works after it."""
    deed = deeds[index]
    if not deed.worked or not deed.calls:
        return None
    touched = deed.asked | deed.found
    refused = [early for early in deeds[:index] if early.wrong and early.calls and early.asked & touched]
    for later in range(index + 1, len(deeds)):
        if deeds[later].worked and any(deeds[later].same_calls(early) for early in refused):
            return later
    return None

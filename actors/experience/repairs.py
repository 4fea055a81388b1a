"""Names that are gone: a call failed under one name and then worked under another, with the same arguments.

Within one run that is as direct as evidence gets: the same thing was wanted, and only the name was changed. It counts
if the first name fails from then on, the agent was not offered both, and the second was not in use while the first one
worked.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from actors.experience.evidence import Read
from actors.messages import Trajectory
from actors.statistics.parties import set_aside
from actors.tool_results.runs import tool_names
from actors.tool_results.tool_calls import ToolCallResult

_PURE = 0.8
"""Share of the runs with calls under the first name in which they fail."""
_WORKS = 0.5
"""Share of the calls under the second name that work: that may fail for reasons of its own."""
_ALIKE = 0.5
"""Share of the arguments' names, and of their values, that both calls have."""


class Repaired(msgspec.Struct, frozen=True):
    """A name and the one that took its place."""

    gone: str
    name: str
    runs: tuple[Trajectory, ...]
    """That show it, oldest first."""
    stuck: tuple[Trajectory, ...]
    """In which it failed and nothing took its place."""


def repairs(runs: Sequence[Read], support: int, party: Callable[[Trajectory], str]) -> list[Repaired]:
    """What `runs` show, oldest first, `support` of them at least."""
    shown: dict[tuple[str, str], list[int]] = defaultdict(list)
    refused: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, one in enumerate(runs):
        changed = _changed(one.calls)
        listed = set(tool_names(one.run.tools)) if changed else set[str]()
        for (gone, name), worked in changed.items():
            if not {gone, name} <= listed:
                (shown if worked else refused)[gone, name].append(number)
    found: list[Repaired] = []
    for (gone, name), where in sorted(shown.items(), key=lambda item: (-len(item[1]), item[0])):
        if gone in {other.name for other in found} or gone in {other.gone for other in found}:
            continue
        tried = sorted([*where, *refused[gone, name]])
        aside = set_aside([party(runs[number].run) for number in tried], _share(runs, tried, set(where), party))
        kept = [number for number in where if party(runs[number].run) not in aside]
        if len(kept) < support or len(where) < _WORKS * len(tried):
            continue
        since = runs[where[0] :]
        failed = [one for one in since if any(call.tool == gone and call.error for call in one.calls)]
        worked = [one for one in since if any(call.tool == gone and not call.error for call in one.calls)]
        if len(failed) < _PURE * (len(failed) + len(worked)) or _in_use(runs[: where[0]], gone, name):
            continue
        mended = {id(runs[number]) for number in where}
        stuck = tuple(one.run for one in failed if id(one) not in mended)
        found.append(Repaired(gone, name, tuple(runs[number].run for number in kept), stuck))
    return found


def _share(
    runs: Sequence[Read], tried: Sequence[int], worked: set[int], party: Callable[[Trajectory], str]
) -> Callable[..., float]:
    def share(left_out: Sequence[str]) -> float:
        rest = [number for number in tried if party(runs[number].run) not in left_out]
        return sum(number in worked for number in rest) / len(rest) if rest else float("nan")

    return share


def _changed(calls: Sequence[ToolCallResult]) -> dict[tuple[str, str], bool]:
    """(name that failed, next other name with the same arguments): whether that worked."""
    found: dict[tuple[str, str], bool] = {}
    for place, call in enumerate(calls):
        if not call.error:
            continue
        again = next((late for late in calls[place + 1 :] if late.turn > call.turn and _same(call, late)), None)
        if again is not None and again.tool != call.tool:
            found[call.tool, again.tool] = not again.error
    return found


def _same(one: ToolCallResult, other: ToolCallResult) -> bool:
    """Whether both calls say the same thing, perhaps under other names."""
    if not one.arguments or not other.arguments:
        return False
    mine, theirs = one.about, other.about
    names, both = one.arguments.keys() & other.arguments.keys(), one.arguments.keys() | other.arguments.keys()
    if not mine:
        return one.arguments == other.arguments
    if not mine <= theirs:
        return False  # with less said it is another thing: an order is looked up after its refund was refused
    return len(names) >= _ALIKE * len(both) and len(mine & theirs) >= _ALIKE * len(mine | theirs)


def _in_use(before: Sequence[Read], gone: str, name: str) -> bool:
    """Whether both names worked side by side."""
    return any(
        any(call.tool == name and not call.error for call in one.calls)
        and any(call.tool == gone and not call.error for call in one.calls)
        for one in before
    )

"""Lessons: what was learnt in words, in the one form that the policy is trained to read, and how trajectories yield it.

    When to use: book. Content: search then book:buy.
    When to use: cancel. Content: before_cancel:check_policy then cancel:drop.

A lesson is filed under an intent: the word of the goal that a tool serves, which is the tool's verb as it was before
any rename. `contrast` compares calls across trajectories: where a call is refused unless another tool was called before
with the same data, that is a precondition; where it fails with invented arguments and works with found ones, the tool
that finds them goes first. Only what a tap sees is compared. Where many parties have evidence, the two that pull a
comparison hardest are set aside (`actors.statistics.parties`). Pure: the experiencer decides what becomes of a lesson.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec

from actors.messages import Experience, Trajectory, derived_id
from actors.statistics.parties import set_aside
from actors.tool_results.tool_calls import ToolCallResult, calls_of, first_word, mentions

Kind = Literal["rename", "precondition", "practice"]
Party = Callable[[Trajectory], str]

_CONTENT = re.compile(
    r"^(?:before_(?P<intent>[^\s:]+):(?P<before>\S+) then |(?P<producer>[^\s:]+) then )?"
    r"(?P<same>[^\s:]+):(?P<tool>\S+)$"
)


class Practice(msgspec.Struct, frozen=True, kw_only=True):
    """How an intent is carried out: which tool, and what goes before it."""

    intent: str
    tool: str
    """The tool's name as it is now."""
    before: str = ""
    """Tool that must be called before, with the same data."""
    producer: str = ""
    """First word of the tool that finds the argument; told where nothing must go before."""

    @property
    def content(self) -> str:
        """The lesson's text without its frame."""
        action = f"{self.intent}:{self.tool}"
        if self.before:
            return f"before_{self.intent}:{self.before} then {action}"
        return f"{self.producer} then {action}" if self.producer else action

    @property
    def tools(self) -> frozenset[str]:
        """Names of tools that must exist for the lesson to be of use."""
        return frozenset(filter(None, (self.tool, self.before)))


class Drawn(msgspec.Struct, frozen=True):
    """A lesson as it was drawn, not yet on trial."""

    practice: Practice
    kind: Kind
    sources: tuple[str, ...]
    """Ids of trajectories that show it."""
    independent: int = 1
    """Independent origins of the evidence, on the side that has fewer."""


class ContrastSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much evidence a contrast needs."""

    support: int = 3
    """Calls on each side: so many that worked one way, and so many that failed the other."""
    purity: float = 0.8
    """Share of either side that must have gone as the lesson says."""
    sources: int = 16
    """Trajectories that are named as sources at most."""


def lesson_id(tenant: str, practice: Practice) -> str:
    """The record id of the lesson `practice`: drawn again, it is the same lesson."""
    return derived_id("lesson", tenant, practice.intent, practice.content)


def read_practice(experience: Experience) -> Practice | None:
    """What the lesson says, None if it is not in our form."""
    found = _CONTENT.match(experience.content)
    if found is None or found["same"] != experience.when_to_use or found["intent"] not in (None, found["same"]):
        return None
    return Practice(
        intent=found["same"], tool=found["tool"], before=found["before"] or "", producer=found["producer"] or ""
    )


class _Tally:
    """Trajectories with a call of one tool that worked or that failed, on one side of a contrast."""

    def __init__(self) -> None:
        self.worked: list[Trajectory] = []
        self.failed: list[Trajectory] = []

    def add(self, call: ToolCallResult, trajectory: Trajectory) -> None:
        (self.failed if call.error else self.worked).append(trajectory)

    def without(self, parties: Collection[str], party: Party) -> "_Tally":
        """The same without those of `parties`."""
        kept = _Tally()
        kept.worked = [run for run in self.worked if party(run) not in parties]
        kept.failed = [run for run in self.failed if party(run) not in parties]
        return kept


def _itself(trajectory: Trajectory) -> str:
    return trajectory.id


def contrast(
    trajectories: Sequence[Trajectory],
    settings: ContrastSettings,
    intents: Mapping[str, str] | None = None,
    origin: Callable[[Trajectory], str] = _itself,
    party: Party = _itself,
) -> list[Drawn]:
    """The lessons that `trajectories` show; the better supported of two for the same intent.

    Args:
        trajectories: of one tenant, under one tool list.
        settings: how much evidence is enough.
        intents: intent by tool, for tools whose verb is not the word that goals use (renamed ones).
        origin: of a trajectory; equal for those that are not independent of each other.
        party: whose evidence a trajectory is.
    """
    known = intents or {}
    runs = [(trajectory, calls_of(trajectory)) for trajectory in trajectories]
    goals: dict[str, set[str]] = defaultdict(set)
    for trajectory, calls in runs:
        for call in calls:
            goals[call.tool].add(trajectory.goal)
    drawn: list[Drawn] = []
    for tool, where in goals.items():
        intent = known.get(tool) or first_word(tool)
        # A lesson is found again by the word that goals use, so one about a mere step on the way has no place to stand.
        if not any(mentions(goal, intent) for goal in where):
            continue
        found = _precondition(tool, intent, runs, settings, party) or _origin(tool, intent, runs, settings, party)
        if found is not None:
            practice, kind, with_it, without = found
            # Whoever wrote one side alone wrote the lesson: what others do on the other side makes it no truer.
            independent = min(len({origin(run) for run in side}) for side in (with_it.worked, without.failed))
            drawn.append(Drawn(practice, kind, _sources(with_it, without, settings), independent))
    return drawn


def _precondition(
    tool: str,
    intent: str,
    runs: Sequence[tuple[Trajectory, list[ToolCallResult]]],
    settings: ContrastSettings,
    party: Party,
) -> tuple[Practice, Kind, _Tally, _Tally] | None:
    """Is `tool` refused unless another tool was called with the same data before?

    Only calls whose arguments were found by earlier calls count: what a guess is answered with says nothing.
    """
    occurrences: list[tuple[ToolCallResult, frozenset[str], Trajectory]] = []
    for trajectory, calls in runs:
        for index, call in enumerate(calls):
            if call.tool == tool and call.grounded:
                earlier = (other for other in calls[:index] if not other.error and other.tool != tool)
                before = frozenset(other.tool for other in earlier if other.shares(call))
                occurrences.append((call, before, trajectory))
    best: tuple[int, str, _Tally, _Tally] | None = None
    for candidate in sorted(set[str]().union(*(before for _, before, _ in occurrences))):
        after, without = _Tally(), _Tally()
        for call, before, trajectory in occurrences:
            (after if candidate in before else without).add(call, trajectory)
        aside = _set_aside(after, without, party)
        after, without = after.without(aside, party), without.without(aside, party)
        if _differs(after, without, settings):
            weight = len(after.worked) + len(without.failed)
            if best is None or weight > best[0]:
                best = weight, candidate, after, without
    if best is None:
        return None
    return Practice(intent=intent, tool=tool, before=best[1]), "precondition", best[2], best[3]


def _origin(
    tool: str,
    intent: str,
    runs: Sequence[tuple[Trajectory, list[ToolCallResult]]],
    settings: ContrastSettings,
    party: Party,
) -> tuple[Practice, Kind, _Tally, _Tally] | None:
    """Does `tool` fail with invented arguments and work with found ones, and who finds them?"""
    found, invented = _Tally(), _Tally()
    producers: dict[str, Counter[str]] = defaultdict(Counter)
    for trajectory, calls in runs:
        for call in calls:
            if call.tool != tool:
                continue
            if call.grounded:
                found.add(call, trajectory)
                if not call.error:
                    producers[party(trajectory)][producer_of(call)] += 1
            elif None in call.origins.values():
                invented.add(call, trajectory)
    aside = _set_aside(found, invented, party)
    found, invented = found.without(aside, party), invented.without(aside, party)
    if not _differs(found, invented, settings):
        return None
    named = sum((told for who, told in producers.items() if who not in aside), Counter[str]())
    return Practice(intent=intent, tool=tool, producer=named.most_common(1)[0][0]), "practice", found, invented


def producer_of(call: ToolCallResult) -> str:
    """First word of the tool that found the first of `call`'s arguments that was found; empty if none was."""
    return next((first_word(origin) for origin in call.origins.values() if origin), "")


def _set_aside(one: _Tally, other: _Tally, party: Party) -> frozenset[str]:
    """The parties without whose calls the two sides are compared."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    parties: list[str] = []
    for place, side in enumerate((one.worked, one.failed, other.worked, other.failed)):
        for run in side:
            counts[party(run)][place] += 1
            parties.append(party(run))
    total = [sum(column) for column in zip(*counts.values(), strict=True)]

    def gain(left_out: Collection[str]) -> float:
        """Share that worked on one side, less that of the other; 0 where a side has nothing."""
        worked, failed, worked_other, failed_other = (
            number - sum(counts[name][place] for name in left_out) for place, number in enumerate(total)
        )
        if not worked + failed or not worked_other + failed_other:
            return 0.0
        return worked / (worked + failed) - worked_other / (worked_other + failed_other)

    return set_aside(parties, gain)


def _differs(one: _Tally, other: _Tally, settings: ContrastSettings) -> bool:
    """Whether calls worked on side `one` and failed on side `other`, often enough on both."""
    return (
        len(one.worked) >= max(settings.support, settings.purity * (len(one.worked) + len(one.failed)))
        and len(other.failed) >= max(settings.support, settings.purity * (len(other.worked) + len(other.failed)))
    )  # fmt: skip


def _sources(one: _Tally, other: _Tally, settings: ContrastSettings) -> tuple[str, ...]:
    half = max(1, settings.sources // 2)
    return tuple(dict.fromkeys(run.id for run in (*one.worked[-half:], *other.failed[-half:])))

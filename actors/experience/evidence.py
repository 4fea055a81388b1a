"""What a contrast compares: calls of one tool, and whole runs, each with what was done before and how it went.

A row is a call that was answered, with whether it worked, or a run with an outcome. Its features: another tool went
before, an argument was given, or its value had been found: said by the user or held by an earlier result. What was done
in one turn was done at once. An argument that is never found is free text, and says nothing either way. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, MutableMapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from actors.messages import Trajectory
from actors.statistics.parties import binds, set_aside
from actors.statistics.permutation import Table
from actors.tool_results.tool_calls import ToolCallResult, calls_of, values

What = Literal["from", "known", "same", "before", "give", "omit", "after", "avoid", "mend"]
"""What a feature says of `tool`: its `argument` came from `other`, or from anywhere at all; `other` went before it, for
the same thing or at all; `argument` was given, or not; `other` was called after it; it was not called while all went
well; a failed call of it was mended."""
WHATS: tuple[What, ...] = ("from", "known", "same", "before", "give", "omit", "after", "avoid", "mend")
"""Of two that tell good from bad alike, the one that says more comes first."""
_SUCCESS = 0.5
_COLUMNS = 512
"""Features of a table, those first that split it most evenly."""
_CALLS = 64
"""Calls of a run that are compared."""


class Feature(msgspec.Struct, frozen=True):
    """Something that a row did or not."""

    what: What
    tool: str
    other: str = ""
    argument: str = ""
    place: str = ""
    """Neighbourhood of goals in which it is looked at; empty for all."""

    @property
    def applies(self) -> Hashable:
        """Which rows it is looked at in: all, or those that called the tool, gave the argument, had a call fail; what
        comes after a tool is looked at where nothing is known to have failed in the end."""
        if self.what == "avoid":
            return ""
        what = self.what if self.what in ("after", "mend") else "call"
        return (what, self.tool, self.argument if self.found else "")

    @property
    def found(self) -> bool:
        """It is about where an argument's value came from."""
        return self.what in ("from", "known")


class Read(msgspec.Struct, frozen=True):
    """A run with its calls, read."""

    run: Trajectory
    calls: tuple[ToolCallResult, ...]
    place: str


class Row(msgspec.Struct, frozen=True):
    """One observation."""

    run: Trajectory
    worked: bool
    stratum: Hashable
    place: str
    has: frozenset[Feature]
    applies: frozenset[Hashable]


class Population:
    """Rows that are compared with each other, as a table.

    Args:
        tool: whose calls they are; empty for whole runs.
        support: rows that a feature needs on each side.
        party: whose evidence a run is.
    """

    def __init__(self, tool: str, rows: Sequence[Row], support: int, party: Callable[[Trajectory], str]) -> None:
        self.tool, self.rows = tool, rows
        self._worked = np.array([row.worked for row in rows], dtype=np.bool_)
        self._split: list[tuple[Hashable, ...]] = [(row.stratum,) for row in rows]
        parties = [party(row.run) for row in rows]
        bound = binds(parties)
        columns: dict[bytes, tuple[Feature, np.ndarray, np.ndarray]] = {}
        for feature, has, counts in self._columns(support):
            if bound:
                aside = self._aside(parties, has, counts)
                counts = counts & np.array([name not in aside for name in parties])
            if min((has & counts).sum(), (~has & counts).sum()) < support:
                continue
            key = has.tobytes() + counts.tobytes()
            known = columns.get(key)
            if known is None or _rank(feature) < _rank(known[0]):
                columns[key] = feature, has, counts
        evenly = sorted(columns.values(), key=lambda one: -min((one[1] & one[2]).sum(), (~one[1] & one[2]).sum()))
        kept = evenly[:_COLUMNS]
        self.features = [feature for feature, _, _ in kept]
        shape = (len(rows), 0)
        self._has = np.stack([has for _, has, _ in kept], axis=1) if kept else np.zeros(shape, dtype=np.bool_)
        self._counts = np.stack([counts for _, _, counts in kept], axis=1) if kept else np.zeros(shape, dtype=np.bool_)

    def split(self, column: int) -> None:
        """Compare only rows from now on that are also alike in this feature."""
        has = self._has[:, column] & self._counts[:, column]
        self._split = [(*before, bool(one)) for before, one in zip(self._split, has, strict=True)]

    def split_runs(self, runs: Collection[str]) -> None:
        """Compare only runs from now on that are both among these, by id, or both not."""
        self._split = [(*before, row.run.id in runs) for before, row in zip(self._split, self.rows, strict=True)]

    def table(self) -> Table:
        """For `actors.statistics.permutation`."""
        numbers: dict[Hashable, int] = {}
        strata = np.array([numbers.setdefault(key, len(numbers)) for key in self._split], dtype=np.int64)
        return Table(self._worked, strata, self._has, self._counts)

    def sides(self, column: int) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
        """Rows with the feature that worked and that failed, and the same without it; of strata that have both."""
        both: dict[Hashable, set[bool]] = defaultdict(set)
        for key, row in zip(self._split, self.rows, strict=True):
            both[key].add(row.worked)
        sides: tuple[list[Row], list[Row], list[Row], list[Row]] = ([], [], [], [])
        for place, (key, row) in enumerate(zip(self._split, self.rows, strict=True)):
            if self._counts[place, column] and len(both[key]) == 2:
                sides[2 * (not self._has[place, column]) + (not row.worked)].append(row)
        return sides

    def order(self, column: int) -> tuple[bool, int, float]:
        """Of columns that tell nearly the same: what holds everywhere, what says more, and what happened first."""
        feature = self.features[column]
        turns = [
            number
            for row, has in zip(self.rows, self._has[:, column], strict=True)
            if has
            for number, step in enumerate(row.run.steps)
            if any(call.name == feature.tool for call in step.tool_calls)
        ]
        return bool(feature.place), WHATS.index(feature.what), sum(turns) / len(turns) if turns else 0.0

    def _columns(self, support: int) -> list[tuple[Feature, np.ndarray, np.ndarray]]:
        rows = self.rows
        having = Counter(feature for row in rows for feature in row.has)
        evenly = sorted(
            having, key=lambda feature: (-min(having[feature], len(rows) - having[feature]), _rank(feature))
        )
        # Where there are too many, those stay that split the rows most evenly.
        named = [feature for feature in evenly if having[feature] >= support or feature.what == "avoid"][:_COLUMNS]
        applied: dict[Hashable, np.ndarray] = {}
        found: list[tuple[Feature, np.ndarray, np.ndarray]] = []
        places = Counter(row.place for row in rows)
        scopes = [place for place, number in places.items() if place and 2 * support <= number < len(rows)]
        within = {place: np.array([row.place == place for row in rows]) for place in scopes}
        for feature in sorted(named, key=_rank):
            has = np.array([feature in row.has for row in rows])
            key = feature.applies
            if key not in applied:
                applied[key] = np.array([key in row.applies for row in rows])
            counts = applied[key]
            if min((has & counts).sum(), (~has & counts).sum()) < support:
                continue
            for said, does in _told(feature, has):
                found.append((said, does, counts))
                if not self.tool:
                    found += [
                        (msgspec.structs.replace(said, place=place), does, counts & there)
                        for place, there in within.items()
                    ]
        return found

    def _aside(self, parties: Sequence[str], has: np.ndarray, counts: np.ndarray) -> frozenset[str]:
        """The parties without whose rows a feature is looked at."""
        tally: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, 2), dtype=np.int64))
        for name, one, works, counted in zip(parties, has, self._worked, counts, strict=True):
            if counted:
                tally[name][int(one), int(works)] += 1
        total = sum(tally.values(), np.zeros((2, 2), dtype=np.int64))

        def gain(left_out: Sequence[str]) -> float:
            rest = total - sum((tally[name] for name in left_out), np.zeros((2, 2), dtype=np.int64))
            (failed_without, worked_without), (failed, worked) = rest.tolist()
            if not worked + failed or not worked_without + failed_without:
                return 0.0
            return worked / (worked + failed) - worked_without / (worked_without + failed_without)

        counted = [name for name, one in zip(parties, counts, strict=True) if one]
        return set_aside(counted, lambda left_out: gain(tuple(left_out)))


def read(
    runs: Sequence[Trajectory],
    place: Callable[[Trajectory], str],
    known: MutableMapping[str, tuple[ToolCallResult, ...]],
) -> list[Read]:
    """`runs` with their calls.

    Args:
        known: calls by run, as they were read before; what is read now is added.
    """
    for run in runs:
        if run.id not in known:
            known[run.id] = tuple(calls_of(run)[:_CALLS])
    return [Read(run, known[run.id], place(run)) for run in runs]


def populations(runs: Sequence[Read], support: int, party: Callable[[Trajectory], str]) -> list[Population]:
    """The calls of each tool, then the runs with an outcome."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for one in runs:
        for tool in dict.fromkeys(call.tool for call in one.calls):
            rows[tool] += _calls(one, tool)
    made = [Population(tool, found, support, party) for tool, found in rows.items() if _varies(found, support)]
    made = [one for one in made if one.features]
    told = [one for one in runs if one.run.outcome is not None and one.run.steps]
    # Goals that are like no others are compared with each other.
    enough = {place for place, number in Counter(one.place for one in told).items() if number >= 2 * support}
    whole = [_whole(one, one.place if one.place in enough else "") for one in told]
    return [*made, Population("", whole, support, party)] if _varies(whole, support) else made


def _varies(rows: Sequence[Row], support: int) -> bool:
    worked = sum(row.worked for row in rows)
    return min(worked, len(rows) - worked) >= support


def _calls(one: Read, tool: str) -> list[Row]:
    """The first call of `tool`, and what became of the first that failed when it was last tried again.

    The two are never compared with each other: whatever comes in between goes before the second and not the first.
    """
    answered = [call for call in one.calls if call.tool == tool and not call.unknown]
    again = answered[-1:] if len(answered) > 1 and answered[0].error else []
    return [
        Row(
            run=one.run, worked=not call.error, stratum=repeated, place=one.place,
            has=frozenset(_features(call, one.calls)), applies=frozenset(_applies(call)),
        )
        for repeated, call in enumerate((*answered[:1], *again))
    ]  # fmt: skip


def _whole(one: Read, place: str) -> Row:
    """A run, to be compared with those of `place`: of each tool the last call says what was done."""
    last = {call.tool: call for call in one.calls}
    failed = Counter(call.tool for call in one.calls if call.error)
    first_failure = min((call.turn for call in one.calls if call.error), default=len(one.run.steps))
    has: set[Feature] = set()
    applies: set[Hashable] = {""}
    well = not any(call.error for call in last.values())
    for tool, call in last.items():
        has |= _features(call, one.calls, failed_too=True)
        applies |= _applies(call)
        if well:
            # What was not called because another call had failed is no cause of the failure.
            applies.add(("after", tool, ""))
            has |= {Feature("after", tool, other.tool) for other in one.calls if other.turn > call.turn}
        if failed[tool]:
            applies.add(("mend", tool, ""))
            has |= set() if call.error else {Feature("mend", tool)}
    for number, step in enumerate(one.run.steps):
        for called in step.tool_calls:
            if number <= first_failure:
                has.add(Feature("avoid", called.name))
    assert one.run.outcome is not None
    return Row(one.run, one.run.outcome >= _SUCCESS, place, place, frozenset(has), frozenset(applies))


def _applies(call: ToolCallResult) -> set[Hashable]:
    return {("call", call.tool, ""), *(("call", call.tool, argument) for argument in call.origins)}


def _features(call: ToolCallResult, calls: Sequence[ToolCallResult], *, failed_too: bool = False) -> set[Feature]:
    """What can be said of `call`.

    Args:
        failed_too: calls that failed went before it as well: for runs, of which how they went is what is asked.
    """
    tool = call.tool
    found = {Feature("give", tool, argument=argument) for argument in call.arguments}
    for argument, origin in call.origins.items():
        if origin is not None:
            found.add(Feature("known", tool, argument=argument))
        if origin:
            found.add(Feature("from", tool, origin, argument))
    about = {argument: values(value) for argument, value in call.arguments.items()}
    for other in calls:
        if other.tool == tool or (other.error and not failed_too) or other.turn >= call.turn:
            continue
        found.add(Feature("before", tool, other.tool))
        if call.about.isdisjoint(other.about):
            continue
        shared = next((argument for argument, mine in about.items() if mine & other.about), None)
        if shared is not None:
            found.add(Feature("same", tool, other.tool, shared))
    return found


def _told(feature: Feature, has: np.ndarray) -> list[tuple[Feature, np.ndarray]]:
    """What `feature` can be said to do good, with the rows that do it."""
    match feature.what:
        case "give":
            return [(feature, has), (msgspec.structs.replace(feature, what="omit"), ~has)]
        case "avoid":
            return [(feature, ~has)]
        case _:
            return [(feature, has)]


def _rank(feature: Feature) -> tuple[bool, int, str, str, str, str]:
    return (
        bool(feature.place), WHATS.index(feature.what), feature.tool, feature.other, feature.argument, feature.place,
    )  # fmt: skip

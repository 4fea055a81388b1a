"""Lessons: what was learnt in words, how they read, and how trajectories yield them.

    When to use: refund money order. Content: before create_refund always call check_policy with the same order_id.
    When to use: cancel. Content: before_cancel:check_policy then cancel:drop.

`contrast` draws them of one agent's runs: where a tool works if something was done before and is refused if not, or
runs succeed that did something and others fail (`evidence`); and a name that is gone beside the one that works in its
place. No name of a tool has to mean anything. All features are tested together, at a stated rate of false lessons;
where many parties have evidence, the two that pull a comparison hardest are set aside.

A lesson is filed under words that its runs' goals share, and names no value of a run. The short form is for tools
called by the very word that goals use: policies are trained to read it (`Practice`). Pure: the experiencer decides what
follows.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Literal

import msgspec

from actors.experience.evidence import Feature, Population, Read, What, populations, read
from actors.experience.intents import intent_of
from actors.experience.repairs import Repaired, repairs
from actors.kinds.clusters import cluster_of
from actors.messages import Experience, Trajectory, derived_id
from actors.statistics.permutation import scores
from actors.tool_results.tool_calls import ToolCallResult, first_word, mentions

Kind = Literal["rename", "precondition", "practice"]
Party = Callable[[Trajectory], str]

_CONTENT = re.compile(
    r"^(?:before_(?P<intent>[^\s:]+):(?P<before>\S+) then |(?P<producer>[^\s:]+) then )?"
    r"(?P<same>[^\s:]+):(?P<tool>\S+)$"
)
_NAME = re.compile(r"[^\s\x00-\x1f\"`<>{}]{1,96}")
"""Names that a lesson repeats: what has blanks in it may be somebody's sentence."""
RATE = 0.05
"""Of drawings from runs that nothing tells apart, those that yield any lesson, at most; false ones are also to be
confirmed before they are used."""
SUPPORT = 3
"""Calls or runs on each side of a contrast: so many that worked one way, and so many that failed the other."""
_GAIN = 0.4
"""What heeding a lesson must add to the share that works: a difference that is surely there may still be too small."""
SOURCES = 16
"""Trajectories that are named as sources at most."""
_NEARLY = 0.9
"""Of the largest z: what reaches so much may as well be the cause."""
_MOST = 4
"""Lessons of one drawing, renames aside."""
_SAYS: dict[What | Literal["", "instead"], str] = {
    "from": "find {argument} with {other}, then call {tool}",
    "known": "{tool} takes {argument} from the request or from an earlier result, never made up",
    "same": "before {tool} always call {other} with the same {argument}",
    "before": "before {tool} always call {other}",
    "give": "always give {argument} to {tool}",
    "omit": "call {tool} without {argument}",
    "after": "after {tool} also call {other}",
    "avoid": "do without {tool}",
    "mend": "when {tool} fails, mend the call and repeat it before you finish",
    "instead": "call {tool} instead of {other}, which is gone",
}


class Practice(msgspec.Struct, frozen=True, kw_only=True):
    """How an intent is carried out: which tool, and what is to be heeded."""

    intent: str
    """Word of the goal that the tool serves in the short form, else words that goals share."""
    tool: str
    """The tool's name as it is now."""
    before: str = ""
    """Tool that must be called before, with the same data."""
    producer: str = ""
    """First word of the tool that finds the argument; told where nothing must go before."""
    what: What | Literal["", "instead"] = ""
    """What is to be heeded, in a sentence; empty for the short form."""
    other: str = ""
    """In a sentence: the other tool."""
    argument: str = ""

    @property
    def content(self) -> str:
        """The lesson's text without its frame."""
        if self.what:
            return _SAYS[self.what].format(tool=self.tool, other=self.other, argument=self.argument)
        action = f"{self.intent}:{self.tool}"
        if self.before:
            return f"before_{self.intent}:{self.before} then {action}"
        return f"{self.producer} then {action}" if self.producer else action

    @property
    def names(self) -> frozenset[str]:
        """All that it speaks of."""
        return frozenset((self.tool, self.before, self.producer, self.other, self.argument))

    @property
    def tools(self) -> frozenset[str]:
        """Names of tools that must exist for the lesson to be of use."""
        gone = self.what == "instead"
        return frozenset(filter(None, (self.tool, self.before, "" if gone else self.other)))


def rivals(one: Experience, other: Experience) -> bool:
    """Whether two practices say different things to the same end: how a goal's word is carried out, or which name is to
    be called now."""
    mine, theirs = read_practice(one), read_practice(other)
    if mine is None or theirs is None or "instead" in (mine.what, theirs.what):
        both = mine is not None and theirs is not None and mine.what == theirs.what and mine.other == theirs.other
        return both or (mine is None and theirs is None and one.when_to_use == other.when_to_use)
    return not mine.what and not theirs.what and one.when_to_use == other.when_to_use


class Drawn(msgspec.Struct, frozen=True):
    """A lesson as it was drawn, not yet on trial."""

    practice: Practice
    kind: Kind
    sources: tuple[str, ...]
    """Ids of trajectories that show it."""
    independent: int = 1
    """Independent origins of the evidence, on the side that has fewer."""
    z: float = 0.0
    """How far it is from what chance does, in standard deviations."""


def lesson_id(tenant: str, practice: Practice) -> str:
    """The record id of the lesson `practice`: drawn again, it is the same lesson."""
    return derived_id("lesson", tenant, practice.intent, practice.content)


def detail_of(practice: Practice) -> dict[str, object]:
    """For `Experience.detail`: what cannot be read from a sentence."""
    return {"practice": msgspec.to_builtins(practice)} if practice.what else {}


def read_practice(experience: Experience) -> Practice | None:
    """What the lesson says, None if it is not in our form."""
    if "practice" in experience.detail:
        try:
            return msgspec.convert(experience.detail["practice"], Practice)
        except msgspec.ValidationError:
            return None
    found = _CONTENT.match(experience.content)
    if found is None or found["same"] != experience.when_to_use or found["intent"] not in (None, found["same"]):
        return None
    return Practice(
        intent=found["same"], tool=found["tool"], before=found["before"] or "", producer=found["producer"] or ""
    )


def _itself(trajectory: Trajectory) -> str:
    return trajectory.id


def _cluster(trajectory: Trajectory) -> str:
    return cluster_of(trajectory.goal)


def contrast(
    trajectories: Sequence[Trajectory],
    intents: Mapping[str, str] | None = None,
    origin: Callable[[Trajectory], str] = _itself,
    party: Party = _itself,
    place: Callable[[Trajectory], str] = _cluster,
    calls: MutableMapping[str, tuple[ToolCallResult, ...]] | None = None,
    support: int = SUPPORT,
) -> list[Drawn]:
    """The lessons that `trajectories` show, the surest first.

    Args:
        trajectories: of one agent, oldest first.
        intents: intent by tool, for tools whose verb is not the word that goals use (renamed ones).
        origin: of a trajectory; equal for those that are not independent of each other.
        party: whose evidence a trajectory is.
        place: neighbourhood of a trajectory's goal.
        calls: by trajectory, as they were read before: reading costs more than comparing.
        support: in place of SUPPORT.
    """
    runs = read(trajectories, place, calls if calls is not None else {})
    known = dict(intents or {})
    drawn: list[Drawn] = []
    compared = populations(runs, support, party)
    for one in repairs(runs, support, party):
        if _NAME.fullmatch(one.gone) and _NAME.fullmatch(one.name):
            drawn.append(_renamed(one, runs, known, origin))
        for population in compared:
            population.split_runs(frozenset(run.id for run in one.stuck))
    return [*drawn, *_contrasted(compared, drawn, runs, support, known, origin)]


def _contrasted(
    compared: Sequence[Population],
    before: Sequence[Drawn],
    runs: Sequence[Read],
    support: int,
    intents: Mapping[str, str],
    origin: Callable[[Trajectory], str],
) -> list[Drawn]:
    drawn: list[Drawn] = []
    for _ in range(2 * _MOST):
        best = _best(compared, support) if len(drawn) < _MOST else None
        if best is None:
            break
        population, column, z = best
        feature = population.features[column]
        right, _, _, wrong = population.sides(column)
        population.split(column)
        # What failed for this reason needs no other.
        for other in compared:
            if other is not population:
                other.split_runs(frozenset(row.run.id for row in wrong))
        practice = _practice(feature, runs, intents, origin)
        if practice in [one.practice for one in drawn]:
            continue  # of another argument, which the short form does not name
        names = {feature.tool, feature.other, feature.argument} - {""}
        if feature.what in ("after", "avoid") and any(names <= one.practice.names for one in (*before, *drawn)):
            continue  # it is part of what another lesson says
        if not all(map(_NAME.fullmatch, names)):
            continue
        sides = [row.run for row in right], [row.run for row in wrong]
        # Whoever wrote one side alone wrote the lesson: what others do on the other side makes it no truer.
        independent = min(len({origin(run) for run in side}) for side in sides)
        kind: Kind = "precondition" if feature.what in ("same", "before") else "practice"
        drawn.append(Drawn(practice, kind, _sources(*sides), independent, z))
    return drawn


def _best(compared: Sequence[Population], support: int) -> tuple[Population, int, float] | None:
    """The feature that tells best what works, as (population, column, z); None if chance would do as well."""
    found, threshold = scores([population.table() for population in compared], rate=RATE)
    sure: list[tuple[float, int, Population, int]] = []
    for number, (population, reached) in enumerate(zip(compared, found, strict=True)):
        for column, z in enumerate(reached):
            if z > threshold and _differs(population, column, support):
                sure.append((float(z), number, population, column))
    if not sure:
        return None
    most = max(z for z, _, _, _ in sure)
    # A tool's own answer is nearer to the cause than the run's outcome; of the rest what happened first.
    nearly = [one for one in sure if one[0] >= _NEARLY * most]
    z, _, population, column = min(nearly, key=lambda one: (not one[2].tool, one[2].order(one[3]), -one[0]))
    return population, column, z


def _differs(population: Population, column: int, support: int) -> bool:
    """Whether so many more rows worked with the feature than without it, and enough of either kind are there."""
    worked, failed, worked_without, failed_without = map(len, population.sides(column))
    if min(worked, failed_without) < support:
        return False
    return worked / (worked + failed) - worked_without / (worked_without + failed_without) >= _GAIN


def _practice(
    feature: Feature, runs: Sequence[Read], intents: Mapping[str, str], origin: Callable[[Trajectory], str]
) -> Practice:
    tool = feature.tool
    word = _spoken(tool, runs, intents)
    if word and feature.what in ("same", "before"):
        return Practice(intent=word, tool=tool, before=feature.other)
    if word and feature.what == "from":
        return Practice(intent=word, tool=tool, producer=first_word(feature.other))
    return Practice(
        intent=_words(tool, runs, origin), tool=tool, what=feature.what, other=feature.other, argument=feature.argument
    )


def _renamed(
    found: Repaired,
    runs: Sequence[Read],
    intents: Mapping[str, str],
    origin: Callable[[Trajectory], str],
) -> Drawn:
    word = _spoken(found.gone, runs, intents)
    practice = Practice(intent=word, tool=found.name)
    if not word:
        practice = Practice(
            intent=_words(found.gone, runs, origin), tool=found.name, what="instead", other=found.gone
        )  # fmt: skip
    return Drawn(practice, "rename", _sources(found.runs, found.stuck), len({origin(run) for run in found.runs}))


def probed(
    tool: str,
    name: str,
    before: str,
    producer: str,
    *,
    runs: Sequence[Trajectory],
    intents: Mapping[str, str],
    origin: Callable[[Trajectory], str],
    calls: MutableMapping[str, tuple[ToolCallResult, ...]],
) -> list[Practice]:
    """What a probe found of `tool`, in the form that its goals can be asked by.

    Args:
        name: as it is called now.
        before: what must go before it; empty for nothing.
        producer: first word of the tool that finds its argument.
        runs: that may have called it, oldest first; the words of their goals are what it is filed under.
    """
    known = read(runs, _cluster, calls)
    word = _spoken(tool, known, intents)
    if word:
        return [Practice(intent=word, tool=name, before=before, producer=producer)]
    words = _words(tool, known, origin)
    said = [Practice(intent=words, tool=name, what="instead", other=tool)] if name != tool else []
    return said + ([Practice(intent=words, tool=name, what="before", other=before)] if before else [])


def _spoken(tool: str, runs: Sequence[Read], intents: Mapping[str, str]) -> str:
    """The word by which goals ask for `tool`, if that is its very name, or was before a rename, and no run says
    otherwise; else empty."""
    word = intents.get(tool) or (tool if tool == first_word(tool) else "")
    asked = [one.run.goal for one in runs if any(call.tool == tool for call in one.calls)]
    return word if word and (not asked or any(mentions(goal, word) for goal in asked)) else ""


def _words(tool: str, runs: Sequence[Read], origin: Callable[[Trajectory], str]) -> str:
    calling = {one.run.id for one in runs if any(call.tool == tool for call in one.calls)}
    return intent_of(
        [one.run for one in runs if one.run.id in calling],
        [one.run for one in runs if one.run.id not in calling],
        tool,
        origin,
    )


def producer_of(call: ToolCallResult) -> str:
    """First word of the tool that found the first of `call`'s arguments that was found; empty if none was."""
    return next((first_word(origin) for origin in call.origins.values() if origin), "")


def _sources(right: Sequence[Trajectory], wrong: Sequence[Trajectory]) -> tuple[str, ...]:
    half = SOURCES // 2
    return tuple(dict.fromkeys(run.id for run in (*right[-half:], *wrong[-half:])))

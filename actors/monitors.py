"""What the sentinel knows and concludes: is the new version worse, and has the world changed?

Pure: a `Watch` takes in runs (production trajectories in brief) and swaps, and answers two questions.

`regression`: since the last swap, do agents fare worse than under the version before? Only runs with the tools of today
count on either side: if tools changed, a fall says nothing about the weights.

`drifts`: have the tools changed under the agents? Three signs, from sure to vague: a tool list that was never seen
before; a jump in the share of steps answered with an error; a fall of success although nothing was swapped.
"""

import json
from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from actors.gate_statistics import Interval, newcombe
from actors.messages import Trajectory, derived_id

Cause = Literal["tools", "errors", "outcomes"]


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the monitors speak up."""

    window: int = 512
    """Runs that are remembered."""
    min_runs: int = 30
    """Runs with an outcome that either side of a comparison must have."""
    confidence: float = 0.999
    """Two-sided; high, because the question is asked again with every batch: at 0.995 one swap in a hundred between
    equal versions would be rolled back (simulated: 120 runs, a look at every fourth)."""
    regression: float = 0.1
    """Smallest observed fall of success that is acted on."""
    recent: int = 24
    """Newest runs that are compared with those before, to find a change of the world."""
    error_jump: float = 0.15
    """Smallest observed rise in the share of error steps that counts as drift."""
    collapse: float = 0.3
    """Smallest observed fall of success without a swap that counts as drift."""
    tool_sightings: int = 2
    """Runs with a new tool list before it is believed: one may be a client's slip."""
    forget_seconds: float = 86_400.0
    """A tool list that was away for so long is news again."""
    cooldown_seconds: float = 300.0
    """Between two directives of the same vague cause."""
    tool_lists: int = 64
    """Tool lists that are remembered for each tenant; the one seen longest ago goes first."""


class Run(msgspec.Struct, frozen=True):
    """A production trajectory in brief."""

    id: str
    tenant: str
    started: float
    ended: float
    low: int
    """Oldest weight version that sampled in it, -1 if unknown."""
    high: int
    tools: str
    """Digest of its tool names."""
    steps: int
    errors: int
    """Steps answered with an error."""
    outcome: float | None = None


class ToolList(msgspec.Struct):
    """A tool list that a tenant's requests carried."""

    names: tuple[str, ...]
    seen: float
    """When last."""
    sightings: int = 0
    told: bool = False
    """It was reported, or it was there from the start."""


class Swap(msgspec.Struct, frozen=True):
    """The last change of the serving weights."""

    engine: str
    version: int
    previous: int
    since: float


class Regression(msgspec.Struct, frozen=True):
    """Agents fare worse since the swap."""

    swap: Swap
    difference: Interval
    before: tuple[int, int]
    """(successes, runs)"""
    after: tuple[int, int]


class Drift(msgspec.Struct, frozen=True):
    """The tools changed, or behave otherwise."""

    cause: Cause
    tenant: str
    tools: str
    """Digest of the tool list that is in use now."""
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    difference: Interval | None = None


class State(msgspec.Struct):
    """All that a `Watch` remembers; msgpack-able, so that it survives a restart."""

    runs: list[Run] = []
    tools: dict[str, dict[str, ToolList]] = {}
    """By tenant, then by digest."""
    swap: Swap | None = None
    condemned: list[int] = []
    """Versions that were rolled back for a regression, newest last."""
    spoken: dict[str, float] = {}
    """When a vague cause was last reported, by tenant and cause."""


def tool_names(tools: bytes) -> tuple[str, ...]:
    """Sorted names in a request's tool list (JSON); empty if there is none or it cannot be read."""
    try:
        listed = json.loads(tools) if tools else []
    except ValueError:
        return ()
    names: set[str] = set()
    for tool in listed if isinstance(listed, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.add(name)
    return tuple(sorted(names))


def is_error(observation: str) -> bool:
    """Whether a tool answered with an error object."""
    if '"error"' not in observation:
        return False
    try:
        value = json.loads(observation)
    except ValueError:
        return False
    return isinstance(value, dict) and "error" in value


def summarize(trajectory: Trajectory) -> tuple[Run, tuple[str, ...]]:
    """`trajectory` in brief, and its tool names."""
    names = tool_names(trajectory.tools)
    run = Run(
        id=trajectory.id,
        tenant=trajectory.tenant,
        started=trajectory.started,
        ended=trajectory.ended,
        low=trajectory.min_version,
        high=trajectory.max_version,
        tools=derived_id("tools", *names),
        steps=len(trajectory.steps),
        errors=sum(is_error(step.observation) for step in trajectory.steps),
        outcome=trajectory.outcome,
    )
    return run, names


class Watch:
    """The monitors over one stream of production runs."""

    def __init__(self, settings: MonitorSettings, state: State | None = None) -> None:
        self.state = state or State()
        self._settings = settings
        self._runs: deque[Run] = deque(self.state.runs, maxlen=settings.window)
        self._ids = {run.id for run in self._runs}

    def snapshot(self) -> State:
        """The state as of now."""
        return msgspec.structs.replace(self.state, runs=list(self._runs))

    def add(self, run: Run, names: tuple[str, ...]) -> None:
        """Take in a run; the second time it changes nothing."""
        if run.id in self._ids:
            return
        if len(self._runs) == self._settings.window:
            self._ids.discard(self._runs[0].id)
        self._runs.append(run)
        self._ids.add(run.id)
        if names:
            self._sight(run, names)

    def _sight(self, run: Run, names: tuple[str, ...]) -> None:
        lists = self.state.tools.setdefault(run.tenant, {})
        known = lists.get(run.tools)
        if known is None:
            # The first list of a tenant is what it works with; only later ones are news.
            known = lists[run.tools] = ToolList(names, run.ended, told=not lists)
        elif run.ended - known.seen > self._settings.forget_seconds:
            known.told, known.sightings = False, 0
        known.seen = max(known.seen, run.ended)
        known.sightings += 1
        if len(lists) > self._settings.tool_lists:
            del lists[min(lists, key=lambda digest: lists[digest].seen)]

    def outcome(self, trajectory_id: str, outcome: float) -> bool:
        """A late outcome; False if the run is not remembered."""
        if trajectory_id not in self._ids:
            return False
        for at, run in enumerate(self._runs):
            if run.id == trajectory_id:
                self._runs[at] = msgspec.structs.replace(run, outcome=outcome)
                return True
        return False

    def swapped(self, swap: Swap) -> None:
        """The serving weights changed."""
        if self.state.swap is None or swap.since >= self.state.swap.since:
            self.state.swap = swap

    def _now(self) -> tuple[str, str] | None:
        """(tenant, digest) of the newest run with tools."""
        return next(((run.tenant, run.tools) for run in reversed(self._runs) if run.steps), None)

    def regression(self) -> Regression | None:
        """Whether the last swap made things worse, once a version."""
        swap, now, settings = self.state.swap, self._now(), self._settings
        if swap is None or now is None or swap.version in self.state.condemned:
            return None
        same = [run for run in self._runs if run.outcome is not None and run.tools == now[1]]
        after = _tally(run for run in same if _under(run, swap.version, swap.since))
        before = _tally(run for run in same if _before(run, swap))
        if min(after[1], before[1]) < settings.min_runs:
            return None
        difference = newcombe(after, before, settings.confidence)
        if difference.high >= 0 or difference.estimate > -settings.regression:
            return None
        self.state.condemned = [*self.state.condemned[-63:], swap.version]
        return Regression(swap, difference, before, after)

    def drifts(self, now: float) -> list[Drift]:
        """What changed in the world since the last call; each thing is told once."""
        found = self._new_lists()
        for tenant in self.state.tools:
            if any(drift.tenant == tenant for drift in found):
                # The sure sign explains the vague ones that are about to follow from it.
                self._speak(tenant, "errors", now)
                self._speak(tenant, "outcomes", now)
                continue
            vague = self._vague(tenant, now)
            if vague is not None:
                found.append(vague)
        return found

    def _new_lists(self) -> list[Drift]:
        found: list[Drift] = []
        for tenant, lists in self.state.tools.items():
            for digest, known in lists.items():
                if known.told or known.sightings < self._settings.tool_sightings:
                    continue
                known.told = True
                names = set(known.names)
                others = [set(other.names) for key, other in lists.items() if key != digest]
                nearest = max(others, key=lambda other: len(other & names) / len(other | names), default=names)
                found.append(
                    Drift("tools", tenant, digest, tuple(sorted(nearest - names)), tuple(sorted(names - nearest)))
                )
        return found

    def _speak(self, tenant: str, cause: Cause, now: float) -> bool:
        """Whether `cause` may be told now; if so it is noted as told."""
        key = f"{tenant}\x1f{cause}"
        if now - self.state.spoken.get(key, float("-inf")) < self._settings.cooldown_seconds:
            return False
        self.state.spoken[key] = now
        return True

    def _vague(self, tenant: str, now: float) -> Drift | None:
        settings = self._settings
        runs = [run for run in self._runs if run.tenant == tenant]
        recent, earlier = runs[-settings.recent :], runs[: -settings.recent]
        if len(recent) < settings.recent or len(earlier) < settings.min_runs:
            return None
        swap = self.state.swap
        if swap is not None and recent[0].started < swap.since <= recent[-1].ended:
            return None  # two versions in the window: that is the question of `regression`
        tools = recent[-1].tools
        errors = newcombe(_error_steps(recent), _error_steps(earlier), settings.confidence)
        if errors.low > 0 and errors.estimate >= settings.error_jump and self._speak(tenant, "errors", now):
            return Drift("errors", tenant, tools, difference=errors)
        version = recent[-1].high
        tallies = _tally(recent), _tally(run for run in earlier if run.high == version)
        if min(count for _, count in tallies) < min(settings.min_runs, settings.recent):
            return None
        outcomes = newcombe(*tallies, settings.confidence)
        fell = outcomes.high < 0 and -outcomes.estimate >= settings.collapse
        if fell and self._speak(tenant, "outcomes", now):
            return Drift("outcomes", tenant, tools, difference=outcomes)
        return None


def _under(run: Run, version: int, since: float) -> bool:
    """Whether `run` was sampled by `version` alone; by time where the engine gave no versions."""
    return run.low == run.high == version if run.low >= 0 else run.started >= since


def _before(run: Run, swap: Swap) -> bool:
    return run.high == swap.previous if run.low >= 0 else run.ended < swap.since


def _tally(runs: Iterable[Run]) -> tuple[int, int]:
    """(successes, runs with an outcome)"""
    outcomes = [run.outcome >= 0.5 for run in runs if run.outcome is not None]
    return sum(outcomes), len(outcomes)


def _error_steps(runs: Iterable[Run]) -> tuple[int, int]:
    """(error steps, steps)"""
    listed = [(run.errors, run.steps) for run in runs]
    return sum(errors for errors, _ in listed), sum(steps for _, steps in listed)

"""Have the tools changed under the agents? Three signs, from sure to vague.

A tool list that was never seen before; a jump in the share of steps answered with an error; a fall of success although
nothing was swapped.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from actors.monitoring.history import History
from actors.monitoring.monitor import Finding, Quiet
from actors.monitoring.settings import ToolSettings
from actors.statistics.intervals import Interval, newcombe
from actors.tool_results.runs import RunSummary

Cause = Literal["tools", "errors", "outcomes"]
_REASONS: dict[Cause, str] = {
    "errors": "tools answer with errors more often than before",
    "outcomes": "success fell although nothing was swapped",
}


class ToolList(msgspec.Struct):
    """A tool list that a tenant's requests carried."""

    names: tuple[str, ...]
    seen: float
    """When last."""
    sightings: int = 0
    told: bool = False
    """It was reported, or it was there from the start."""


class ToolState(msgspec.Struct):
    """What the monitor remembers."""

    tools: dict[str, dict[str, ToolList]] = {}
    """By tenant, then by digest."""
    spoken: dict[str, float] = {}
    """When a vague cause was last reported, by tenant and cause."""


class ToolDrift(Quiet):
    """Watches tool lists, errors of tools, and success without a swap."""

    name = "tools"

    def __init__(self, settings: ToolSettings) -> None:
        self._settings = settings
        self._state = ToolState()

    def sighted(self, run: RunSummary, names: tuple[str, ...]) -> None:
        """A run came with this tool list; before `look`, as all runs do."""
        if not names:
            return
        lists = self._state.tools.setdefault(run.tenant, {})
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

    def look(self, history: History, now: float) -> list[Finding]:
        found = self._new_lists(now)
        for tenant in self._state.tools:
            if any(finding.details["tenant"] == tenant for finding in found):
                # The sure sign explains the vague ones that are about to follow from it.
                self._speak(tenant, "errors", now)
                self._speak(tenant, "outcomes", now)
                continue
            vague = self._errors(history, tenant, now) or self._collapse(history, tenant, now)
            if vague is not None:
                found.append(vague)
        return found

    def save(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=ToolState)

    def _new_lists(self, now: float) -> list[Finding]:
        found: list[Finding] = []
        for tenant, lists in self._state.tools.items():
            for digest, known in lists.items():
                if known.told or known.sightings < self._settings.tool_sightings:
                    continue
                known.told = True
                names = set(known.names)
                others = [set(other.names) for key, other in lists.items() if key != digest]
                nearest = max(others, key=lambda other: len(other & names) / len(other | names), default=names)
                missing, new = sorted(nearest - names), sorted(names - nearest)
                details = {"missing": ",".join(missing)} if missing else {}
                details |= {"new": ",".join(new)} if new else {}
                reason = f"tools changed: {len(missing)} gone, {len(new)} new"
                found.append(self._finding("tools", tenant, digest, now, reason, details))
        return found

    def _finding(
        self, cause: Cause, tenant: str, tools: str, now: float, reason: str, details: dict[str, str]
    ) -> Finding:
        # The period stands in the key so that a tool list that comes back after it was forgotten is told again.
        return Finding(
            cause=cause,
            key=(tenant, tools, int(now // self._settings.cooldown_seconds)),
            action="drift",
            reason=reason,
            details={"cause": cause, "tenant": tenant, "tools": tools, **details},
        )

    def _speak(self, tenant: str, cause: Cause, now: float) -> bool:
        """Whether `cause` may be told now; if so it is noted as told."""
        key = _spoken(tenant, cause)
        if now - self._state.spoken.get(key, float("-inf")) < self._settings.cooldown_seconds:
            return False
        self._state.spoken[key] = now
        return True

    def _errors(self, history: History, tenant: str, now: float) -> Finding | None:
        settings = self._settings
        runs = [run for run in history.window if run.tenant == tenant]
        recent, earlier = runs[-settings.recent :], runs[: -settings.recent]
        if len(recent) < settings.recent or len(earlier) < settings.min_runs:
            return None
        swap = history.swap
        if swap is not None and recent[0].started < swap.since <= recent[-1].ended:
            return None  # two versions in the window: that is the question of the version monitors
        errors = newcombe(_error_steps(recent), _error_steps(earlier), settings.confidence)
        if errors.low > 0 and errors.estimate >= settings.error_jump:
            return self._said("errors", tenant, recent, errors, now)
        return None

    def _collapse(self, history: History, tenant: str, now: float) -> Finding | None:
        """Success fell while one version served; what a swap did is the question of the version monitors."""
        settings = self._settings
        # Failures may be reported sooner than successes: only what is known at once is known of old and new runs alike.
        prompt = (run for run in history.reported if run.tenant == tenant and not run.late)
        runs = sorted(prompt, key=lambda run: run.ended)
        if not runs:
            return None
        version = history.version(runs[-1])
        if version is None and history.swap is not None:
            return None
        runs = [run for run in runs if history.version(run) == version]
        recent, earlier = runs[-settings.recent :], runs[: -settings.recent]
        if len(recent) < settings.recent or len(earlier) < settings.min_runs:
            return None
        # Where few runs are reported the same ones stay the newest for hours: they are told once.
        if recent[0].ended <= self._state.spoken.get(_spoken(tenant, "outcomes"), float("-inf")):
            return None
        outcomes = newcombe(_tally(recent), _tally(earlier), settings.confidence)
        if outcomes.high < 0 and -outcomes.estimate >= settings.collapse:
            return self._said("outcomes", tenant, recent, outcomes, now)
        return None

    def _said(
        self, cause: Cause, tenant: str, recent: Sequence[RunSummary], difference: Interval, now: float
    ) -> Finding | None:
        if not self._speak(tenant, cause, now):
            return None
        details = {"difference": f"{difference.estimate:.3f}"}
        which = "runs with an outcome" if cause == "outcomes" else "runs"
        reason = f"{_REASONS[cause]} ({difference.estimate:+.0%} in the last {len(recent)} {which})"
        return self._finding(cause, tenant, recent[-1].tools, now, reason, details)


def _spoken(tenant: str, cause: Cause) -> str:
    return f"{tenant}\x1f{cause}"


def _tally(runs: Iterable[RunSummary]) -> tuple[int, int]:
    """(successes, runs with an outcome)"""
    outcomes = [run.succeeded for run in runs if run.succeeded is not None]
    return sum(outcomes), len(outcomes)


def _error_steps(runs: Iterable[RunSummary]) -> tuple[int, int]:
    """(error steps, steps)"""
    listed = [(run.errors, run.steps) for run in runs]
    return sum(errors for errors, _ in listed), sum(steps for _, steps in listed)

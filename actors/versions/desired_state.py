"""What should serve, on all engines together: derived from the books alone, every time anew.

    verdicts, directives, servings  ->  `plan`  ->  what is stable, what is on trial, what waits

A promoted version is on trial first; `roll_on` makes it stable, `rollback` ends the trial. One trial at a time: the
newest that is promoted meanwhile waits, and is dropped if the trial is rolled back.
"""

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from actors.messages import Directive, Serving, Verdict

ATTEMPTS = 2
"""Swaps to one version that may fail on one engine before it is left alone for good: one may be bad luck."""
FORWARD = ("promote", "roll_on", "thaw")
"""Directives that bring weights in: they count only with a signature. The others stop or go back."""
_WATCHED = "sentinel"
"""Origin of a rollback that production asks for, and no person."""


class Goal(msgspec.Struct, frozen=True):
    """What an engine should serve, and why."""

    version: int
    path: str
    manifest: str
    """sha256 that manifest.json must have; empty for weights that were there before any verdict."""
    why: Literal["verdict", "order", "rollback", "restore"]


class ServingTrial(msgspec.Struct, frozen=True):
    """A promoted version that is not yet stable."""

    goal: Goal
    engine: str = ""
    """The canary; empty until one has taken it."""
    since: float = 0.0
    """When the canary took it, unix seconds."""
    swaps: int = 0
    """How often the canary had to be brought to it: more than once if it came up again with other weights."""


class Plan(msgspec.Struct):
    """What should serve after the events that were taken, in the order of their times."""

    served: dict[str, set[int]]
    """By engine: versions that it has served, those of events still to be taken among them."""
    several: bool
    """Whether there are several engines."""
    frozen: bool
    kept: Collection[int] | None
    """Versions on disk; None: not known."""
    stable: Goal | None = None
    """On every engine but the canary, and what a trial is compared with; None if nothing ever served, or nothing good
    is left."""
    trial: ServingTrial | None = None
    waiting: Goal | None = None
    """The trial after this one."""
    own: dict[str, Goal] = {}
    """By engine: what it served last."""
    gave_up: dict[str, set[int]] = {}
    """By engine: stable versions that it would not take and is not asked to take again."""
    banned: set[int] = set()
    """Versions that were rolled back or refused."""
    _good: list[Goal] = []
    _manifests: dict[int, str] = {}
    _failures: dict[tuple[str, int], int] = {}
    _rolled_back: set[int] = set()

    @property
    def good(self) -> tuple[int, ...]:
        """Versions that were stable, each once, the latest last: those that one can go back to."""
        return tuple(reversed(dict.fromkeys(goal.version for goal in reversed(self._good))))

    def goal(self, engine: str) -> Goal | None:
        """What `engine` should serve; None if it is to be left alone. Who asks first takes a trial without an engine.

        While `frozen` no engine gets weights that are newer than its own and that it never served.
        """
        trial = self.trial
        want = trial.goal if trial is not None and trial.engine in ("", engine) else self.stable
        if want is None or want.version in self.gave_up.get(engine, ()):
            return None
        own = self.own.get(engine)
        if self.frozen and own is not None and self.forward(engine, want):
            return own if own.version not in self.banned else None
        return want

    def forward(self, engine: str, want: Goal) -> bool:
        """Whether `want` brings `engine` something new, rather than back to where it or the others were."""
        own = self.own.get(engine)
        return want.version not in self.served.get(engine, ()) and (own is None or want.version > own.version)

    def take(self, event: "Event") -> None:
        """Go on by one event."""
        match event:
            case Verdict(decision="promote"):
                self._manifests[event.version] = event.manifest
                # Better than what was rolled back says nothing: the gate was at it when the rollback came. Nor does
                # better than what was there before a newer one was promoted.
                judged = event.incumbent not in self._rolled_back and not self._outdated(event)
                if event.version not in self.banned and judged:
                    goal = Goal(event.version, event.path, event.manifest, "verdict")
                    self._promote(goal, against=event.incumbent)
            case Directive(kind="promote"):
                self._order(event)
            case Directive(kind="roll_on"):
                if self.trial is not None and self.trial.goal.version == number(event, "version"):
                    self._roll_on(self.trial)
            case Directive(kind="rollback"):
                bad, to, since = (number(event, key) for key in ("version", "to", "since"))
                self._go_back(bad, to, since, watched=event.origin == _WATCHED)
            case Serving(result="started" | "swapped"):
                self._serves(event)
            case Serving(result="refused" | "rolled_back"):
                self._failed(event.engine, event.version)
            case _:
                pass

    def _promote(self, goal: Goal, *, against: int | None = None) -> None:
        """`against`: the version that it was compared with; None: an operator's order, which is carried out at once."""
        if self.frozen and not any(goal.version in versions for versions in self.served.values()):
            return
        trial = self.trial
        if trial is not None and trial.goal.version == goal.version:
            return
        if self.stable is not None and self.stable.version == goal.version:
            self.waiting = None
        elif trial is not None and against is not None and (trial.engine or _ordered(trial.goal, against)):
            # What is on trial is judged first, else a busy gate would end every trial; what was ordered serves first.
            self.waiting = goal
        else:
            self.trial = ServingTrial(goal)

    def _outdated(self, verdict: Verdict) -> bool:
        """Whether something newer than both versions that were compared serves or is on trial by now."""
        on_trial = -1 if self.trial is None else self.trial.goal.version
        stable = -1 if self.stable is None else self.stable.version
        return max(verdict.version, verdict.incumbent) < max(on_trial, stable)

    def _order(self, order: Directive) -> None:
        version = number(order, "version")
        if version is None:
            return
        trial = self.trial
        if trial is not None and trial.engine and trial.goal.version == version:
            self._roll_on(trial)  # promoted by hand while it was on trial: the operator has seen enough
            return
        self.banned.discard(version)
        self._rolled_back.discard(version)
        self._failures = {key: number for key, number in self._failures.items() if key[1] != version}
        for versions in self.gave_up.values():
            versions.discard(version)
        manifest = order.details.get("manifest", "")
        self._manifests[version] = manifest
        self._promote(Goal(version, order.details.get("path", ""), manifest, "order"))

    def _roll_on(self, trial: ServingTrial) -> None:
        self.stable = trial.goal
        self._good.append(msgspec.structs.replace(trial.goal, why="restore"))
        self._next()

    def _next(self) -> None:
        waiting, self.trial, self.waiting = self.waiting, None, None
        if waiting is not None and waiting.version not in self.banned:
            self.trial = ServingTrial(waiting)

    def _go_back(self, bad: int | None, to: int | None, since: int | None, *, watched: bool) -> None:
        """Several versions go from `since` to `bad`. `watched`: the sentinel says so, as the trial may have done."""
        trial = self.trial
        if bad is None:
            bad = trial.goal.version if trial is not None else self._good[-1].version if self._good else None
        on_trial = None if trial is None else trial.goal.version
        again = bad in self._rolled_back and bad not in (on_trial, self._version())
        if again and (watched or to in (None, self._version())):
            return  # two watched it, and both said so
        if bad is not None:
            gone = {bad, *(goal.version for goal in self._good if since is not None and since <= goal.version <= bad)}
            self.banned |= gone
            self._rolled_back |= gone
        # What waits came of what goes, or was compared with it; a trial, too, unless it is what goes.
        self.trial = self.waiting = None
        if on_trial is not None and on_trial == bad and to in (None, self._version()):
            return
        self.stable = self._fall_back("rollback", to) or self.stable

    def _version(self) -> int | None:
        return None if self.stable is None else self.stable.version

    def _fall_back(self, why: Literal["rollback", "restore"], to: int | None = None) -> Goal | None:
        choices = [choice for choice in reversed(self._good) if choice.version not in self.banned]
        choices = [choice for choice in choices if self.kept is None or choice.version in self.kept] or choices
        named = [choice for choice in choices if choice.version == to]
        # Where what was named is not kept any more: what served before it, not what came of it.
        before = [choice for choice in choices if to is not None and choice.version < to]
        return next((msgspec.structs.replace(choice, why=why) for choice in named or before or choices), None)

    def _serves(self, event: Serving) -> None:
        goal = Goal(event.version, event.path, self._manifests.get(event.version, ""), "restore")
        self.own[event.engine] = goal
        trial = self.trial
        if trial is not None and trial.goal.version == event.version:
            if self.stable is None or self.stable.version in self.banned:
                self._roll_on(trial)  # there is nothing to compare it with, and nothing to go back to
                return
            if trial.engine in ("", event.engine):
                since = trial.since if trial.engine else event.since
                self.trial = ServingTrial(trial.goal, event.engine, since, trial.swaps + 1)
            return
        self._good.append(goal)
        if self.stable is None or self.stable.version == event.version:
            self.stable = goal

    def _failed(self, engine: str, version: int) -> None:
        key = (engine, version)
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] < ATTEMPTS:
            return
        passed = any(goal.version == version for goal in self._good)
        if self.several and passed:
            self.gave_up.setdefault(engine, set()).add(version)
            return
        self.banned.add(version)
        if self.waiting is not None and self.waiting.version == version:
            self.waiting = None
        if self.trial is not None and self.trial.goal.version == version:
            self._next()
        elif self._version() == version:
            self.stable = self._fall_back("restore") or self.stable


Event = Verdict | Directive | Serving


def plan(
    engines: Collection[str], events: Iterable[Event], *, frozen: bool, kept: Collection[int] | None = None
) -> Plan:
    """What should serve on `engines` after all that was decided.

    Verdicts, and directives of the kinds `FORWARD`, must have been verified. A version that was rolled back, or that
    the canary (or the only engine) failed to take `ATTEMPTS` times, is not wanted again until an operator promotes it
    anew; what the canary passed and another engine fails to take leaves that engine behind. While `frozen` a promotion
    counts only if it was carried out before.
    """
    mine = [event for event in events if not isinstance(event, Serving) or event.engine in engines]
    served: dict[str, set[int]] = {}
    for event in mine:
        if isinstance(event, Serving) and event.result in ("started", "swapped"):
            served.setdefault(event.engine, set()).add(event.version)
    found = Plan(served, len(engines) > 1, frozen, kept)
    for event in sorted(mine, key=when):
        found.take(event)
    if found.stable is not None and found.stable.version in found.banned:
        found.stable = None
    return found


def when(event: Event) -> float:
    """Unix seconds."""
    return event.since if isinstance(event, Serving) else event.created


def _ordered(goal: Goal, against: int) -> bool:
    """Whether an operator asked for `goal`, and the gate did not know it."""
    return goal.why == "order" and goal.version != against


def number(directive: Directive, key: str) -> int | None:
    """The version in the directive's details under `key`, None if there is none."""
    text = directive.details.get(key, "")
    return int(text) if text.isdecimal() else None

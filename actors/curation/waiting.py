"""What does learning wait for? One sentence and one remedy for people, one word for metrics.

    facts of curator, gate and fleet -> `waiting` -> `Learning`

Pure, and without memory: since when it waits follows from what happened last. That it waits too long is for an alert on
`evolved_learning_waits_seconds` to say.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from actors.curation.remedies import FEEDBACK, NO_FAULT, commonest, counted, remedy
from actors.messages import Candidate, Directive

WaitsFor = Literal["outcomes", "runs", "verdict", "trial", "learner", "groups", "thaw", "nothing"]
HOUR = 3600.0
"""Seconds: an update, or an outcome, that is younger says that nothing is wrong."""
ORDER_SECONDS = 600.0
"""Seconds that the learner has to answer; then the order is sent again."""
_LEARNER = "see that the learner runs: systemctl status evolved-learner, or evolved learner --config FILE"
_LOOK = "see what the actor {} waits for, and whether its engine answers: evolved status, evolved doctor"


class Heard:
    """What the curator heard last of the learner and of operators; told again after a restart, from the books."""

    def __init__(self, now: float) -> None:
        self.since = now
        """Unix seconds: when learning last went on, by an answer of the learner, a thaw, or the start."""
        self.updated, self.version = 0.0, -1
        """When there last was a new version, and which; 0: never."""
        self.freeze: Directive | None = None

    @property
    def frozen(self) -> bool:
        """Whether somebody stopped learning."""
        return self.freeze is not None

    def answer(self, candidate: Candidate) -> None:
        """The learner has said something; candidates come in the order of their times."""
        if candidate.answer == "went_back":
            return
        self.since = max(self.since, candidate.created)
        if candidate.answer == "trained":
            self.updated, self.version = max((self.updated, self.version), (candidate.created, candidate.version))

    def directive(self, directive: Directive) -> None:
        """Somebody stopped learning, or let it go on."""
        if directive.kind == "freeze":
            self.freeze = self.freeze or directive
        elif directive.kind == "thaw":
            self.freeze, self.since = None, max(self.since, directive.created)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict, or a version on trial, waits for."""

    version: int
    since: float
    """Unix seconds."""
    have: int = 0
    need: int = 0
    """0: what is waited for is not counted in outcomes."""
    until: float | None = None
    """Unix seconds when it ends whatever there is by then."""
    reason: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known now. Times are unix seconds; 0: never."""

    now: float
    heard: Heard
    halted: str = ""
    """The kill switch's reason."""
    ordered: float | None = None
    """Since when an order waits for the learner's answer."""
    ordered_runs: int = 0
    fresh: int = 0
    """Reported runs of production that could be ordered now."""
    fresh_needed: int = 0
    behind: int = 0
    """Reported runs that wait because the learner is too far ahead of what serves."""
    unreported: int = 0
    """Runs that wait for their outcome."""
    groups: int = 0
    groups_needed: int = 0
    """0: there is no sandbox."""
    last_run: float = 0.0
    """When production's newest run ended."""
    reported: int = 0
    """Production's runs with an outcome, of a week."""
    dropped: Mapping[str, int] = {}
    """Runs of production that will never be ordered, by reason."""
    head: int = 0
    """Version that the next update starts from."""
    serving: Sequence[int] = ()
    lead: int | None = 0
    """Updates from what serves to the head; None: the head is on another branch."""
    verdict: Evidence | None = None
    trial: Evidence | None = None
    promoted: int | None = None
    """Version that waits for its trial."""

    def at(self, time: float) -> str:
        """A time in UTC, with its day unless that is today: "09:10 UTC", "2026-01-31 09:10 UTC"."""
        then, today = datetime.fromtimestamp(time, UTC), datetime.fromtimestamp(self.now, UTC)
        return f"{then:%H:%M} UTC" if then.date() == today.date() else f"{then:%Y-%m-%d %H:%M} UTC"

    def late(self, since: float) -> bool:
        """Whether it has waited for long enough that something may be wrong."""
        return self.now - since > HOUR


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    waits_for: WaitsFor
    sentence: str
    remedy: str = ""
    """What to change; empty if nothing."""
    have: int = 0
    need: int = 0
    since: float
    """Unix seconds since when it waits."""
    state: Literal["moving", "waiting", "frozen"] = "waiting"
    """moving: there was an update within the hour."""


def waiting(facts: Facts) -> Learning:
    """What learning waits for."""
    groups, heard = facts.groups_needed > 0, facts.heard
    have, need = (facts.groups, facts.groups_needed) if groups else (facts.fresh, facts.fresh_needed)
    if facts.halted or facts.heard.frozen:
        return _frozen(facts)
    if facts.ordered is not None:
        found = _learner(facts, facts.ordered)
    elif facts.fresh < facts.fresh_needed and facts.behind and not facts.groups:
        found = _ahead(facts)
    elif have >= need:
        found = Learning(waits_for="nothing", sentence="The next update is being ordered.", since=facts.now)
    else:
        found = _groups(facts) if groups else _production(facts)
    if not heard.updated or facts.late(heard.updated):
        return found
    made = f"v{heard.version} was trained at {facts.at(heard.updated)}. "
    return msgspec.structs.replace(found, state="moving", sentence=made + found.sentence)


def _frozen(facts: Facts) -> Learning:
    order = facts.heard.freeze
    since = order.created if order else facts.now
    if facts.halted:
        text, change = f"The kill switch is on: {facts.halted}.", "remove the file FREEZE in the state directory"
    else:
        why = f": {order.reason}" if order and order.reason else ""
        text, change = f"Frozen since {facts.at(since)}{why}.", "evolved thaw, once its cause is gone"
    return Learning(waits_for="thaw", sentence=text, remedy=change, since=since, state="frozen")


def _learner(facts: Facts, since: float) -> Learning:
    late = facts.now - since > ORDER_SECONDS
    text = "The learner has not answered: it" if late else "The learner"
    text += f" has {facts.ordered_runs} runs to train on since {facts.at(since)}."
    return Learning(waits_for="learner", sentence=text, remedy=_LEARNER if late else "", since=since)


def _ahead(facts: Facts) -> Learning:
    """The learner is at its limit: nothing newer serves."""
    since = facts.heard.since
    serves = ", ".join(f"v{version}" for version in facts.serving) or "nothing"
    if facts.lead is None:
        text = f"The learner stands at v{facts.head}, which does not come of what serves ({serves}), and is to go back."
        return Learning(waits_for="learner", sentence=text, remedy=_LEARNER, since=since)
    ahead = f"{facts.behind} reported runs wait: the learner (v{facts.head}) is {facts.lead} updates ahead of {serves}."
    tried = facts.trial is not None or facts.promoted is not None
    name: WaitsFor = "trial" if tried else "verdict"
    one = facts.trial if tried else facts.verdict
    if one is None:
        text, actor = f"v{facts.head} is to be judged", "gatekeeper"
        if tried:
            text, actor = f"v{facts.promoted} passed the gate and is to be swapped in", "swapper"
        change = _LOOK.format(actor) if facts.late(since) else ""
        return Learning(waits_for=name, sentence=f"{ahead} {text}.", remedy=change, since=since)
    if tried:
        text, change = f"v{one.version} is on trial", "" if facts.reported else FEEDBACK
    else:
        decide = f'{FEEDBACK}; or decide yourself: evolved promote {one.version} --force --reason "..."'
        text, change = f"The verdict on v{one.version} waits", decide if facts.late(one.since) else ""
    # Without a number the gate's own words say what is missing.
    told = f": {one.have} of {one.need} outcomes" if one.need else f": {one.reason}" if one.reason else ""
    end = f"; it ends at {facts.at(one.until)} at the latest" if one.until is not None else ""
    text = f"{ahead} {text} since {facts.at(one.since)}{told}{end}."
    return Learning(waits_for=name, sentence=text, remedy=change, since=one.since, have=one.have, need=one.need)


def _groups(facts: Facts) -> Learning:
    since, have, need = facts.heard.since, facts.groups, facts.groups_needed
    text = f"{have} of {need} groups of the sandbox since {facts.at(since)}"
    text += f", and {facts.fresh} of {facts.fresh_needed} outcomes" if facts.fresh_needed else ""
    change = "look at the rollout and the sandbox: evolved status" if facts.late(since) else ""
    return Learning(waits_for="groups", sentence=f"{text}.", remedy=change, since=since, have=have, need=need)


def _production(facts: Facts) -> Learning:
    since, have, need, last = facts.heard.since, facts.fresh, facts.fresh_needed, facts.last_run
    name: WaitsFor = "runs"
    left = f"; {facts.unreported} runs have none yet" if facts.unreported else ""
    count = f"{have} of {need} outcomes for the next update since {facts.at(since)}{left}"
    unfit = {why: number for why, number in facts.dropped.items() if why not in NO_FAULT}
    if not last:
        text, change = f"No run has come since {facts.at(since)}.", "point your agents at the tap (docs/attach.md)"
        have = need = 0
    elif not have and not facts.unreported and unfit:
        text, change = f"Runs come, and none may be trained on: {counted(unfit)}.", remedy(commonest(unfit))
    elif facts.late(last) and facts.reported:
        text, change, since = f"{count}; no run has ended since {facts.at(last)}.", "", last
    else:
        name, none = "outcomes", "" if facts.reported else "; no outcome was ever reported"
        text, change = f"{count}{none}.", FEEDBACK if none or facts.late(since) else ""
    return Learning(waits_for=name, sentence=text, remedy=change, since=since, have=have, need=need)

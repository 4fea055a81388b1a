"""What does learning wait for? One sentence and one remedy for people, one word for metrics.

    facts of curator, gate and fleet -> `waiting` -> `Learning`

Pure, and without memory: since when it waits follows from what happened last. That it waits too long is for an alert on
`evolved_learning_waits_seconds` to say.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from actors.curation.pace import clock, duration
from actors.curation.remedies import FEEDBACK, commonest, counted, remedy
from actors.messages import Candidate, Directive

State = Literal["moving", "waiting", "frozen"]
WaitsFor = Literal["outcomes", "runs", "verdict", "trial", "learner", "groups", "thaw", "nothing"]
HOUR = 3600.0
"""Seconds: an update, or an outcome, that is younger says that nothing is wrong."""
_PATIENCE = 600.0
"""Seconds that the learner has to answer, as the curator gives it (`ORDER_SECONDS`)."""
_SKIPPED = 3
"""Orders without an update one after the other, from which on it is no accident."""
_LEARNER = "see that the learner runs: systemctl status evolved-learner, or evolved learner --config FILE"
_LOOK = "see what the actor {} waits for, and whether its engine answers: evolved status, evolved doctor"


class Heard:
    """What the curator heard last of the learner and of operators; told again after a restart, from the books."""

    def __init__(self, now: float) -> None:
        self.since = now
        """Unix seconds: when learning last went on, by an answer of the learner, a thaw, or the start."""
        self.updated, self.version = 0.0, -1
        """When there last was a new version, and which; 0: never."""
        self.skipped_orders = 0
        """Orders answered without an update since."""
        self.skipped: Counter[str] = Counter()
        """Their runs, by reason."""
        self.freeze: Directive | None = None

    def answer(self, candidate: Candidate) -> None:
        """The learner has said something; candidates come in the order of their times."""
        if candidate.answer == "went_back":
            return
        self.since = max(self.since, candidate.created)
        if candidate.answer == "trained":
            self.updated, self.version = max((self.updated, self.version), (candidate.created, candidate.version))
            self.skipped_orders = 0
            self.skipped.clear()
        else:
            self.skipped_orders += 1
            self.skipped.update(candidate.no_gradient.values())

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
    frozen: bool = False
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
    wait_seconds: float = 0.0
    """So long production enough for an update waits for the sandbox's groups."""
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


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    waits_for: WaitsFor
    sentence: str
    remedy: str = ""
    """What to change; empty if nothing."""
    have: int = 0
    need: int = 0
    since: float = 0.0
    """Unix seconds since when it waits."""
    state: State = "waiting"
    """moving: there was an update within the hour."""


def waiting(facts: Facts) -> Learning:
    """What learning waits for."""
    found, heard = _wait(facts), facts.heard
    if found.waits_for == "thaw":
        return msgspec.structs.replace(found, state="frozen")
    if not heard.updated or facts.now - heard.updated > HOUR:
        return found
    made = f"v{heard.version} was trained at {clock(heard.updated, facts.now)}. "
    return msgspec.structs.replace(found, state="moving", sentence=made + found.sentence)


def _wait(facts: Facts) -> Learning:
    if facts.halted or facts.frozen:
        return _frozen(facts)
    if facts.ordered is not None:
        return _learner(facts, facts.ordered)
    if facts.fresh < facts.fresh_needed and facts.behind > 0 and not facts.groups:
        return _ahead(facts)
    found, heard = _batch(facts), facts.heard
    if heard.skipped_orders < _SKIPPED:
        return found
    # Outcomes do come, and teach nothing.
    text = f"The last {heard.skipped_orders} orders made no update"
    text += f": of their runs {counted(heard.skipped)}. " if heard.skipped else ". "
    change = remedy(commonest(heard.skipped)) or found.remedy
    return msgspec.structs.replace(found, sentence=text + found.sentence, remedy=change)


def _frozen(facts: Facts) -> Learning:
    order = facts.heard.freeze
    since = order.created if order is not None else facts.now
    if facts.halted:
        text, change = f"The kill switch is on: {facts.halted}.", "remove the file FREEZE in the state directory"
    else:
        why = f": {order.reason}" if order is not None and order.reason else ""
        text, change = f"Frozen since {clock(since, facts.now)}{why}.", "evolved thaw, once its cause is gone"
    return Learning(waits_for="thaw", sentence=text, remedy=change, since=since)


def _learner(facts: Facts, since: float) -> Learning:
    lasts = facts.now - since
    if lasts <= _PATIENCE:
        text = f"The learner has {facts.ordered_runs} runs to train on since {clock(since, facts.now)}."
        return Learning(waits_for="learner", sentence=text, since=since)
    text = f"The learner has not answered for {duration(lasts)}: an order waits since {clock(since, facts.now)}."
    return Learning(waits_for="learner", sentence=text, remedy=_LEARNER, since=since)


def _ahead(facts: Facts) -> Learning:
    """The learner is at its limit: nothing newer serves."""
    since, late = facts.heard.since, facts.now - facts.heard.since > HOUR
    serves = ", ".join(f"v{version}" for version in facts.serving) or "nothing"
    if facts.lead is None:
        text = f"The learner stands at v{facts.head}, which does not come of what serves ({serves}), and is to go back."
        return Learning(waits_for="learner", sentence=text, remedy=_LEARNER, since=since)
    ahead = f"{facts.behind} reported runs wait: the learner (v{facts.head}) is {facts.lead} updates ahead of {serves}."
    if facts.trial is not None:
        one = facts.trial
        text = f"{ahead} v{one.version} is on trial since {clock(one.since, facts.now)}{_outcomes(facts, one)}."
        return _evidence("trial", one, text, "" if facts.reported else FEEDBACK)
    if facts.promoted is not None:
        text = f"{ahead} v{facts.promoted} passed the gate and is to be swapped in."
        return Learning(
            waits_for="trial", sentence=text, remedy=_LOOK.format("swapper") if late else "", since=since
        )  # fmt: skip
    if facts.verdict is None:
        text, change = f"{ahead} v{facts.head} is to be judged.", _LOOK.format("gatekeeper") if late else ""
        return Learning(waits_for="verdict", sentence=text, remedy=change, since=since)
    one = facts.verdict
    # Without a number the gate's own words say what is missing.
    tells = _outcomes(facts, one) if one.need else f": {one.reason}" if one.reason else ""
    text = f"{ahead} The verdict on v{one.version} waits since {clock(one.since, facts.now)}{tells}."
    decide = f'{FEEDBACK}; or decide yourself: evolved promote {one.version} --force --reason "..."'
    return _evidence("verdict", one, text, decide if facts.now - one.since > HOUR else "")


def _evidence(name: Literal["verdict", "trial"], one: Evidence, text: str, change: str) -> Learning:
    return Learning(waits_for=name, sentence=text, remedy=change, since=one.since, have=one.have, need=one.need)


def _outcomes(facts: Facts, one: Evidence) -> str:
    told = f": {one.have} of {one.need} outcomes" if one.need else ""
    return told + (f"; it ends at {clock(one.until, facts.now)} at the latest" if one.until is not None else "")


def _batch(facts: Facts) -> Learning:
    """Too little for an update."""
    have, need = (facts.groups, facts.groups_needed) if facts.groups_needed else (facts.fresh, facts.fresh_needed)
    if have >= need:
        return Learning(waits_for="nothing", sentence="The next update is being ordered.", since=facts.now)
    return _groups(facts) if facts.groups_needed else _production(facts)


def _groups(facts: Facts) -> Learning:
    since = facts.heard.since
    text = f"{facts.groups} of {facts.groups_needed} groups of the sandbox since {clock(since, facts.now)}"
    text += f", and {facts.fresh} of {facts.fresh_needed} outcomes" if facts.fresh_needed else ""
    if facts.groups or facts.fresh >= facts.fresh_needed:
        text += f"; what there is, is ordered {duration(facts.wait_seconds)} after it came, at the latest"
    late = facts.now - since > HOUR
    return Learning(
        waits_for="groups", sentence=f"{text}.", since=since, have=facts.groups, need=facts.groups_needed,
        remedy="look at the rollout and the sandbox: evolved status" if late else "",
    )  # fmt: skip


def _production(facts: Facts) -> Learning:
    since, need, last = facts.heard.since, facts.fresh_needed, facts.last_run
    if not last:
        text = f"No run has come since {clock(since, facts.now)}."
        return Learning(
            waits_for="runs", sentence=text, remedy="point your agents at the tap (docs/attach.md)", since=since
        )
    left = f"; {facts.unreported} runs have none yet" if facts.unreported else ""
    count = f"{facts.fresh} of {need} outcomes for the next update since {clock(since, facts.now)}{left}"
    found = Learning(waits_for="runs", sentence="", since=since, have=facts.fresh, need=need)
    unfit = {why: number for why, number in facts.dropped.items() if why not in ("held out", "no outcome")}
    if not facts.fresh and not facts.unreported and unfit:
        text = f"Runs come, and none may be trained on: {counted(unfit)}."
        return msgspec.structs.replace(found, sentence=text, remedy=remedy(commonest(unfit)))
    if facts.now - last >= HOUR and facts.reported:
        text = f"{count}; no run has ended since {clock(last, facts.now)}."
        return msgspec.structs.replace(found, sentence=text, since=last)
    none = "; no outcome was ever reported" if not facts.reported else ""
    change = FEEDBACK if none or facts.now - since > HOUR else ""
    return msgspec.structs.replace(found, waits_for="outcomes", sentence=f"{count}{none}.", remedy=change)

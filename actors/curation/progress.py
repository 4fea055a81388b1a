"""What does learning wait for, and since when? One answer for people, metrics and alerts.

    facts of curator, gate and swapper -> `progress` -> `Learning`: a state, a count, one sentence

Pure, and without memory of its own: since when it waits follows from what happened last. What has lasted for three
times as long as it usually takes is stuck.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from actors.curation.pace import clock, duration, takes
from actors.curation.remedies import FEEDBACK, commonest, counted, remedy

State = Literal["moving", "waiting", "stuck", "frozen"]
WaitsFor = Literal["outcomes", "runs", "verdict", "trial", "learner", "groups", "thaw", "nothing"]
PATIENCE = 3.0
"""Times what it usually takes."""
QUICK = 120.0
"""Seconds within which an update is never late, whatever is usual."""
HOUR = 3600.0
"""Seconds: nothing is called stuck before."""
_SKIPPED = 3
"""Orders without an update one after the other, from which on it is no accident."""
_LEARNER = "see that the learner runs: systemctl status evolved-learner, or evolved learner --config FILE"

_LOOK = "see what the actor {} waits for, and whether its engine answers: evolved status, evolved doctor"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict, or a version on trial, waits for."""

    version: int
    since: float
    """Unix seconds."""
    have: int = 0
    need: int = 0
    """0: what is waited for is not counted in outcomes."""
    share: float = 1.0
    """Of the reported runs that may be trained on, how many count here, to one of them."""
    until: float | None = None
    """Unix seconds when it ends whatever there is by then."""
    reason: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known now. Times are unix seconds; 0: never."""

    now: float
    since: float = 0.0
    """Since when it is known."""
    halted: str = ""
    """The kill switch's reason."""
    frozen: bool = False
    frozen_since: float = 0.0
    frozen_reason: str = ""
    thawed: float = 0.0
    updated: float = 0.0
    """Last new version."""
    version: int = -1
    """That one."""
    swapped: float = 0.0
    answered: float = 0.0
    """Last answer of the learner, with a new version or without."""
    ordered: float | None = None
    """Since when an order waits for the learner's answer."""
    ordered_runs: int = 0
    update_seconds: float | None = None
    """From an order to its version, usually."""
    skipped_orders: int = 0
    """Answered without an update since the last one."""
    skipped: Mapping[str, int] = {}
    """Their runs by reason."""
    skipped_since: float = 0.0
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
    group_size: int = 1
    wait_seconds: float = 0.0
    """So long production enough for an update waits for the sandbox's groups."""
    runs: Sequence[float] = ()
    """When production's newest came."""
    reported: Sequence[float] = ()
    """When the newest came that have an outcome and may be trained on."""
    played: Sequence[float] = ()
    """When the sandbox's newest came."""
    first_report: float = 0.0
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

    state: State
    waits_for: WaitsFor
    sentence: str
    remedy: str = ""
    """What to change; empty if nothing."""
    have: int = 0
    need: int = 0
    since: float = 0.0
    """Unix seconds since when it waits."""


class _Wait(msgspec.Struct, frozen=True, kw_only=True):
    waits_for: WaitsFor
    sentence: str
    remedy: str
    since: float
    have: int = 0
    need: int = 0
    usual: float | None = None
    """Seconds that it takes usually; None: that is not known."""


def progress(facts: Facts) -> Learning:
    """What learning waits for."""
    wait = _wait(facts)
    state = "frozen" if wait.waits_for == "thaw" else _state(facts, wait)
    made = f"v{facts.version} was trained at {clock(facts.updated, facts.now)}. " if state == "moving" else ""
    return Learning(
        state=state,
        waits_for=wait.waits_for,
        sentence=(made if facts.version >= 0 else "") + wait.sentence,
        remedy=wait.remedy,
        have=wait.have,
        need=wait.need,
        since=wait.since,
    )


def _state(facts: Facts, wait: _Wait) -> State:
    lasts = facts.now - wait.since
    busy = max([*facts.runs, *facts.reported, *facts.played], default=0.0) > facts.now - HOUR
    # By night nobody calls: then it waits for runs, and nothing is wrong. A learner that is down is, at any time.
    late = wait.usual is None or lasts > PATIENCE * wait.usual
    if lasts >= HOUR and late and (busy or wait.waits_for == "learner"):
        return "stuck"
    moved = max(facts.updated, facts.swapped)
    return "moving" if moved and facts.now - moved <= PATIENCE * _one_update(facts) else "waiting"


def _one_update(facts: Facts) -> float:
    """Seconds from one update to the next, at the usual rate."""
    seconds = facts.update_seconds or 0.0
    ways = [
        takes(facts.fresh_needed, facts.reported),
        takes(facts.groups_needed * facts.group_size, facts.played) if facts.groups_needed else None,
    ]
    return max(QUICK, seconds + min((way for way in ways if way is not None), default=0.0))


def _wait(facts: Facts) -> _Wait:
    if facts.halted or facts.frozen:
        return _frozen(facts)
    began = max(facts.since, facts.answered, facts.thawed)
    if facts.ordered is not None:
        return _learner(facts, facts.ordered)
    if facts.fresh < facts.fresh_needed and facts.behind > 0 and not facts.groups:
        return _ahead(facts, began)
    wait = _batch(facts, began)
    if facts.skipped_orders < _SKIPPED:
        return wait
    # Outcomes do come, and teach nothing.
    text = f"The last {facts.skipped_orders} orders made no update"
    text += f": of their runs {counted(facts.skipped)}. " if facts.skipped else ". "
    return msgspec.structs.replace(
        wait,
        sentence=text + wait.sentence,
        remedy=remedy(commonest(facts.skipped)) or wait.remedy,
        since=max(facts.skipped_since, facts.thawed),
        usual=None,
    )


def _frozen(facts: Facts) -> _Wait:
    since = facts.frozen_since or facts.now
    if facts.halted:
        text, change = f"The kill switch is on: {facts.halted}.", "remove the file FREEZE in the state directory"
    else:
        why = f": {facts.frozen_reason}" if facts.frozen_reason else ""
        text, change = f"Frozen since {clock(since, facts.now)}{why}.", "evolved thaw, once its cause is gone"
    return _Wait(waits_for="thaw", sentence=text, remedy=change, since=since)


def _learner(facts: Facts, since: float) -> _Wait:
    usual = facts.update_seconds if facts.update_seconds is not None else QUICK
    limit = max(QUICK, PATIENCE * usual)
    lasts = facts.now - since
    if lasts <= limit:
        text = f"The learner has {facts.ordered_runs} runs to train on since {clock(since, facts.now)}"
        text += f"; it usually takes {duration(usual)}." if facts.update_seconds is not None else "."
        return _Wait(waits_for="learner", sentence=text, remedy="", since=since, usual=usual)
    known = f"; it usually takes {duration(usual)}" if facts.update_seconds is not None else ""
    text = f"The learner has not answered for {duration(lasts)}: orders wait since {clock(since, facts.now)}{known}."
    return _Wait(waits_for="learner", sentence=text, remedy=_LEARNER, since=since, usual=limit / PATIENCE)


def _ahead(facts: Facts, began: float) -> _Wait:
    """The learner is at its limit: nothing newer serves."""
    serves = ", ".join(f"v{version}" for version in facts.serving) or "nothing"
    if facts.lead is None:
        text = f"The learner stands at v{facts.head}, which does not come of what serves ({serves}), and is to go back."
        return _Wait(waits_for="learner", sentence=text, remedy=_LEARNER, since=began, usual=QUICK)
    ahead = f"{facts.behind} reported runs wait: the learner (v{facts.head}) is {facts.lead} updates ahead of {serves}."
    if facts.trial is not None:
        one = facts.trial
        text = f"{ahead} v{one.version} is on trial since {clock(one.since, facts.now)}{_outcomes(facts, one)}."
        return _evidence("trial", facts, one, text, FEEDBACK if not facts.reported else "")
    if facts.promoted is not None:
        text = f"{ahead} v{facts.promoted} passed the gate and is to be swapped in."
        change = _LOOK.format("swapper") if facts.now - began > HOUR else ""
        return _Wait(waits_for="trial", sentence=text, remedy=change, since=began)
    if facts.verdict is None:
        text = f"{ahead} v{facts.head} is to be judged."
        change = _LOOK.format("gatekeeper") if facts.now - began > HOUR else ""
        return _Wait(waits_for="verdict", sentence=text, remedy=change, since=began)
    one = facts.verdict
    # Without a number the gate's own words say what is missing.
    tells = _outcomes(facts, one) if one.need else f": {one.reason}" if one.reason else ""
    text = f"{ahead} The verdict on v{one.version} waits since {clock(one.since, facts.now)}{tells}."
    decide = f'{FEEDBACK}; or decide yourself: evolved promote {one.version} --force --reason "..."'
    return _evidence("verdict", facts, one, text, decide if facts.now - one.since > HOUR else "")


def _evidence(name: Literal["verdict", "trial"], facts: Facts, one: Evidence, text: str, change: str) -> _Wait:
    usual = takes(one.need, facts.reported, one.share) if one.need else None
    limits = [each for each in (usual, one.until - one.since if one.until is not None else None) if each is not None]
    return _Wait(
        waits_for=name, sentence=text, remedy=change, since=one.since, have=one.have, need=one.need,
        usual=min(limits, default=None),
    )  # fmt: skip


def _outcomes(facts: Facts, one: Evidence) -> str:
    told = f": {one.have} of {one.need} outcomes" if one.need else ""
    return told + (f"; it ends at {clock(one.until, facts.now)} at the latest" if one.until is not None else "")


def _batch(facts: Facts, began: float) -> _Wait:
    """Too little for an update."""
    if facts.groups_needed and facts.groups >= facts.groups_needed:
        return _Wait(waits_for="nothing", sentence="The next update is being ordered.", remedy="", since=facts.now)
    if not facts.groups_needed and facts.fresh >= facts.fresh_needed:
        return _Wait(waits_for="nothing", sentence="The next update is being ordered.", remedy="", since=facts.now)
    if facts.groups_needed and (facts.groups or facts.played or facts.fresh >= facts.fresh_needed):
        return _groups(facts, began)
    return _production(facts, began)


def _groups(facts: Facts, began: float) -> _Wait:
    size = facts.group_size
    text = f"{facts.groups} of {facts.groups_needed} groups of the sandbox since {clock(began, facts.now)}"
    text += f", and {facts.fresh} of {facts.fresh_needed} outcomes" if facts.fresh_needed else ""
    if facts.groups or facts.fresh >= facts.fresh_needed:
        text += f"; what there is, is ordered {duration(facts.wait_seconds)} after it came, at the latest"
    return _Wait(
        waits_for="groups", sentence=f"{text}.", since=began, have=facts.groups, need=facts.groups_needed,
        remedy="" if facts.played else "look at the rollout and the sandbox: evolved status",
        usual=takes(facts.groups_needed * size, facts.played),
    )  # fmt: skip


def _production(facts: Facts, began: float) -> _Wait:
    last = max([*facts.runs, *facts.reported], default=0.0)
    if not last:
        text = f"No run has come since {clock(facts.since, facts.now)}."
        return _Wait(
            waits_for="runs", sentence=text, remedy="point your agents at the tap (docs/attach.md)", since=began
        )
    have, need = facts.fresh, facts.fresh_needed
    left = f"; {facts.unreported} runs have none yet" if facts.unreported else ""
    count = f"{have} of {need} outcomes for the next update since {clock(began, facts.now)}{left}"
    if facts.now - last >= HOUR:
        text = f"{count}; no run and no outcome has come since {clock(last, facts.now)}."
        return _Wait(waits_for="runs", sentence=text, remedy="", since=last, have=have, need=need)
    unfit = {why: number for why, number in facts.dropped.items() if why not in ("held out", "no outcome")}
    if not facts.reported and not facts.unreported and unfit:
        text = f"Runs come, and none may be trained on: {counted(unfit)}."
        return _Wait(
            waits_for="runs", sentence=text, remedy=remedy(commonest(unfit)), since=began, have=have, need=need
        )  # fmt: skip
    if not facts.first_report:
        text = f"{count}; no outcome was ever reported."
        return _Wait(waits_for="outcomes", sentence=text, remedy=FEEDBACK, since=began, have=have, need=need)
    usual = takes(need, facts.reported)
    slow = usual is None or facts.now - began > PATIENCE * usual
    return _Wait(
        waits_for="outcomes", sentence=f"{count}.", remedy=FEEDBACK if slow else "", since=began, have=have,
        need=need, usual=usual,
    )  # fmt: skip

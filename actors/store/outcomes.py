"""What is reported of how runs went after they had closed: the latest final report is a run's outcome.

    feedback finds its run -> `hear` -> the run's row, by revisions -> `trajectory.outcome`, published with the commit
                                     -> who takes it in notes the revision (`Used`), and takes it in once

What a run came to in training is in its own row: `batch_id`, `came`. A report that comes when the run is in
an order changes what is known of it, and trains nothing again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select, update

from actors.messages import Attributed, Candidate, Feedback, Message, OutcomeChanged, Trajectory, encode
from actors.store import runs
from actors.store.agents import LEARNED
from actors.store.columns import among
from actors.store.records import Joined
from actors.store.tables import IN_AN_ORDER, Reports, Runs, Uses

R = TypeVar("R", bound=Attributed | Trajectory)
CORRECTIONS = 3
"""Of one trajectory's outcome: nobody moves estimates a thousand times by changing his mind."""
Did = Literal["told", "correction", "equal", "outdated", "not_final", "capped", "not_a_number"]
"""What a report did: it was the first, corrected it, or changed nothing."""
GIVEN_UP = "given up"
_FAILED = "failed"
"""Answer to an order that the learner parked."""


class Latest(msgspec.Struct, frozen=True):
    """Runs that an actor hears of, as their rows have them."""

    runs: Mapping[str, Attributed]
    """By id. Not those without credit: they come with it, and then with their outcome; nor what is older than its row,
    whose newer outcome comes."""
    used: dict[str, int]
    """By id: the newest revision of its outcome that the actor has taken in."""
    settled: set[str]
    """Those that a batch used or the curator dropped."""

    def news(self, run: Trajectory) -> bool:
        """Whether the outcome of `run` is one that the actor has not taken in; from now on it has."""
        if run.outcome is None or self.used.get(run.id, -1) >= run.outcome_revision:
            return False
        self.used[run.id] = run.outcome_revision
        return True


def hear(
    connection: Connection, joins: Sequence[Joined], fresh: Collection[str]
) -> tuple[Counter[str], list[OutcomeChanged]]:
    """Feedback has found its trajectories: what it did to their outcomes, and which of production's are others now.
    Those in `fresh` were written in this transaction, with an outcome that may be of this feedback."""
    unheard = select(Reports.body).where(among(Reports.id, (one.id for one in joins)), Reports.effect == "")
    said = {report.id: report for report in runs.bodies(connection, unheard, Feedback)}
    did, changed = Counter[str](), dict[str, OutcomeChanged]()
    # Made once for all: to make a statement takes longer than to run it.
    wanted = select(Runs.id, Runs.outcome, Runs.revision, Runs.source).where(Runs.id == bindparam("run"))
    noted = update(Reports).where(Reports.id == bindparam("report")).values(effect=bindparam("word"))
    for joined in joins:
        report = said.get(joined.id)
        if joined.outcome is None or report is None:
            continue
        if (run := connection.execute(wanted, {"run": joined.trajectory_id}).first()) is None:
            continue
        word = _did(connection, joined.outcome, run, report, closing=joined.trajectory_id in fresh)
        if word is None:
            continue
        did[word] += 1
        connection.execute(noted, {"report": joined.id, "word": word})
        if word in ("told", "correction") and joined.outcome != run.outcome:
            revision = 0 if run.outcome is None else run.revision + 1
            _adopt(connection, run.id, joined.outcome, revision, report.received)
            if run.source == "production":
                changed[run.id] = OutcomeChanged(id=run.id, revision=revision)
    return did, list(changed.values())


def _did(connection: Connection, outcome: float, row: Any, report: Feedback, *, closing: bool) -> Did | None:
    if closing and row.revision == 0 and outcome == row.outcome:
        # It closed with this and maybe others: of them the last final one is its outcome.
        if report.outcome == row.outcome:
            return "told"
        return None if report.outcome is None else "outdated"
    if not isfinite(outcome):
        return "not_a_number"
    if row.source != "production" and row.outcome is not None:
        return None  # measured where it was played; nobody's agent did that
    if row.outcome is None:
        return "told"
    if outcome == row.outcome:
        return "equal"
    if not (report.kind == "outcome" and report.final):
        return "not_final"
    # When the newest report came that its outcome rests on: one that said the same again counts as well.
    heard = Reports.joined == row.id, Reports.effect.in_(("told", "correction", "equal"))
    if report.received < (connection.scalar(select(func.max(Reports.received)).where(*heard)) or 0.0):
        return "outdated"
    return "capped" if row.revision >= CORRECTIONS else "correction"


def _adopt(connection: Connection, key: str, outcome: float, revision: int, told: float) -> None:
    """The trajectory's row takes over what was said of it since it closed."""
    message = runs.trajectory(connection, key)
    if message is not None:
        body = encode(revised(message, outcome, revision))
        values = {"outcome": outcome, "revision": revision, "told": told, "body": body}
        connection.execute(update(Runs).where(Runs.id == key).values(values))


def revised(record: R, outcome: float | None, revision: int) -> R:
    """`record` with this outcome, if that is newer than its own."""
    run = record.trajectory if isinstance(record, Attributed) else record
    if outcome is None or (run.outcome is not None and revision <= run.outcome_revision):
        return record
    told: Any = msgspec.structs.replace(run, outcome=outcome, outcome_revision=revision)
    if isinstance(record, Attributed):
        told = msgspec.structs.replace(record, trajectory=told)
    return told


def latest(connection: Connection, actor: str, messages: Sequence[Message]) -> Latest:
    """What `messages` are about, attributed runs and changed outcomes, and what of it `actor` knows.

    A record may be older on its stream than in the store, and of the two that tell of one outcome either comes first.
    """
    items = {one.id: one for one in messages if isinstance(one, Attributed)}
    told = {(one.id, one.revision) for one in messages if isinstance(one, OutcomeChanged)}
    mine = (Uses.trajectory_id == Runs.id) & (Uses.actor == actor)
    settled = ((Runs.batch_id != "") | (Runs.came != "")).label("settled")
    rows = select(Runs.id, Runs.outcome, Runs.revision, settled, func.max(Uses.revision).label("used"))
    rows = rows.outerjoin(Uses, mine).where(among(Runs.id, {*items, *(key for key, _ in told)})).group_by(Runs.id)
    known = {row.id: row for row in connection.execute(rows)}
    items |= {key: revised(items[key], row.outcome, row.revision) for key, row in known.items() if key in items}
    wanted = [key for key, revision in told if key not in items and key in known and known[key].revision == revision]
    credited = select(Runs.body).where(among(Runs.id, wanted), Runs.attributed)
    items |= {item.id: item for item in runs.bodies(connection, credited, Attributed)}
    used = {key: row.used for key, row in known.items() if row.used is not None}
    return Latest(items, used, {key for key, row in known.items() if row.settled})


def newest_late(connection: Connection, since: float, limit: int) -> list[str]:
    """Trajectories whose outcome came late, the newest `limit` from `since` on (unix seconds), oldest first."""
    wanted = select(Runs.id).where(Runs.told >= since, Runs.source == "production")
    return list(reversed(connection.scalars(wanted.order_by(Runs.told.desc(), Runs.id).limit(limit)).all()))


def answered(connection: Connection, candidate: Candidate) -> None:
    """Note at each run of the learner's orders what came of it; what was answered before stays."""
    if candidate.answer == "went_back" or not candidate.batch_ids:
        return
    by_reason: dict[str, list[str]] = {}
    for key, why in candidate.no_gradient.items():
        by_reason.setdefault(why, []).append(key)
    theirs = IN_AN_ORDER, Runs.batch_id.in_(candidate.batch_ids)
    open_ones = update(Runs).where(*theirs, Runs.came.in_(("", GIVEN_UP, _FAILED)))
    for why, keys in by_reason.items():
        connection.execute(open_ones.where(among(Runs.id, keys)).values(came=why))
    connection.execute(open_ones.values(came=LEARNED if candidate.answer == "trained" else candidate.answer))


def forget(connection: Connection, trajectory_ids: Sequence[str]) -> None:
    """Their trajectories are gone."""
    connection.execute(delete(Uses).where(among(Uses.trajectory_id, trajectory_ids)))

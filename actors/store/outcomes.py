"""What is reported of how runs went after they had closed: the latest final report is a run's outcome.

    feedback finds its run -> `hear` -> the run's row, by revisions -> `trajectory.outcome`, published with the commit
                                     -> who takes it in notes the revision (`Used`), and takes it in once

What a run came to in training is in its own row: `dropped`, `batch_id`, `came`. A report that comes when the run is in
an order changes what is known of it, and trains nothing again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from actors.messages import Attributed, Candidate, Feedback, Message, OutcomeChanged, Trajectory, decode, encode
from actors.store import tables as t
from actors.store.agents import LEARNED
from actors.store.engine import chunks, insert_new, table_of
from actors.store.records import Joined, Used

CORRECTIONS = 3
"""Of one trajectory's outcome: nobody moves estimates a thousand times by changing his mind."""
Did = Literal["told", "correction", "equal", "outdated", "not_final", "capped", "not_a_number"]
"""What a report did: it was the first, corrected it, or changed nothing: said the same, came after a newer one, is no
final outcome, is a correction too many, is no number."""
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

    Args:
        fresh: trajectories that were written in this transaction, with an outcome that may be of this feedback.
    """
    rows, said, feedback = _rows(connection, joins), _said(connection, joins), t.FeedbackRow
    did: Counter[str] = Counter()
    changed: dict[str, OutcomeChanged] = {}
    for joined in joins:
        row, report = rows.get(joined.trajectory_id), said.get(joined.id)
        if joined.outcome is None or row is None or report is None:
            continue
        word = _did(connection, joined.outcome, row, report, closing=joined.trajectory_id in fresh)
        if word is None:
            continue
        did[word] += 1
        connection.execute(update(feedback).where(feedback.id == joined.id).values(effect=word))
        if word in ("told", "correction") and joined.outcome != row.outcome and _adopt(connection, joined, row, report):
            changed[row.id] = OutcomeChanged(id=row.id, revision=row.revision)
    return did, list(changed.values())


class _Row(msgspec.Struct):
    id: str
    outcome: float | None
    revision: int
    source: str


def _did(connection: Connection, outcome: float, row: _Row, report: Feedback, *, closing: bool) -> Did | None:
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
    if report.received < _last_word(connection, row.id):
        return "outdated"
    return "capped" if row.revision >= CORRECTIONS else "correction"


def _last_word(connection: Connection, trajectory_id: str) -> float:
    """When the newest report came that its outcome rests on: one that said the same again counts as well."""
    row = t.FeedbackRow
    heard = row.joined == trajectory_id, row.effect.in_(("told", "correction", "equal"))
    return connection.scalar(select(func.max(row.received)).where(*heard)) or 0.0


def _adopt(connection: Connection, joined: Joined, row: _Row, report: Feedback) -> bool:
    """The trajectory's row takes over what was said of it since it closed; whether anybody is to hear of that."""
    run, outcome = t.TrajectoryRow, joined.outcome
    assert outcome is not None
    revision = 0 if row.outcome is None else row.revision + 1
    body = connection.scalar(select(run.body).where(run.id == row.id))
    message = None if body is None else decode(body)
    if isinstance(message, Attributed):
        message = msgspec.structs.replace(message, trajectory=revised(message.trajectory, outcome, revision))
    elif isinstance(message, Trajectory):
        message = revised(message, outcome, revision)
    else:
        return False
    values = {"outcome": outcome, "revision": revision, "told": report.received, "body": encode(message)}
    connection.execute(update(run).where(run.id == row.id).values(**values))
    row.outcome, row.revision = outcome, revision
    return row.source == "production"


def revised(run: Trajectory, outcome: float, revision: int) -> Trajectory:
    """`run` with this outcome."""
    return msgspec.structs.replace(run, outcome=outcome, outcome_revision=revision)


def use(connection: Connection, uses: Sequence[Used]) -> None:
    """Actors have taken these revisions in."""
    rows = [{"trajectory_id": one.id, "actor": one.actor, "revision": one.revision} for one in uses]
    insert_new(connection, table_of(t.UseRow), rows)


def latest(connection: Connection, actor: str, messages: Sequence[Message]) -> Latest:
    """What `messages` are about, attributed runs and changed outcomes, and what of it `actor` knows.

    A record may be older on its stream than in the store, and of the two that tell of one outcome either comes first.
    """
    items = {one.id: one for one in messages if isinstance(one, Attributed)}
    told = {(one.id, one.revision) for one in messages if isinstance(one, OutcomeChanged)}
    row, use, known = t.TrajectoryRow, t.UseRow, dict[str, tuple[float | None, int]]()
    used: dict[str, int] = {}
    for part in chunks(sorted({*items, *(key for key, _ in told)})):
        found = connection.execute(select(row.id, row.outcome, row.revision).where(row.id.in_(part)))
        known |= {key: (outcome, revision) for key, outcome, revision in found}
        mine = select(use.trajectory_id, func.max(use.revision)).where(use.trajectory_id.in_(part), use.actor == actor)
        used |= {key: revision for key, revision in connection.execute(mine.group_by(use.trajectory_id))}
    for key, item in items.items():
        outcome, revision = known.get(key, (None, 0))
        run = item.trajectory
        if outcome is not None and (run.outcome is None or revision > run.outcome_revision):
            items[key] = msgspec.structs.replace(item, trajectory=revised(run, outcome, revision))
    wanted = [key for key, revision in told if key not in items and known.get(key, (None, -1))[1] == revision]
    for part in chunks(wanted):
        for body in connection.scalars(select(row.body).where(row.id.in_(part), row.attributed)):
            if isinstance(item := decode(body), Attributed):
                items[item.id] = item
    return Latest(items, used)


def newest_late(connection: Connection, since: float, limit: int) -> list[str]:
    """Trajectories whose outcome came late, the newest `limit` from `since` on (unix seconds), oldest first."""
    row = t.TrajectoryRow
    wanted = select(row.id).where(row.told >= since, row.source == "production").order_by(row.told.desc(), row.id)
    return list(reversed(connection.scalars(wanted.limit(limit)).all()))


def give_up(connection: Connection, trajectory_ids: Sequence[str]) -> None:
    """Their order is: nothing was learned from them, unless it is answered yet."""
    run = t.TrajectoryRow
    for part in chunks(trajectory_ids):
        connection.execute(update(run).where(run.id.in_(part), run.came == "").values(came=GIVEN_UP))


def answered(connection: Connection, candidate: Candidate) -> None:
    """The learner has said what became of its orders: note at each run what came of it; what was answered before
    stays, for an answer may come again."""
    if candidate.answer == "went_back" or not candidate.batch_ids:
        return
    run, member, by_reason = t.TrajectoryRow, t.BatchMemberRow, dict[str, list[str]]()
    for key, why in candidate.no_gradient.items():
        by_reason.setdefault(why, []).append(key)
    held = select(member.trajectory_id).where(member.batch_id.in_(candidate.batch_ids))
    open_ones = run.id.in_(held), run.came.in_(("", GIVEN_UP, _FAILED))
    for why, keys in by_reason.items():
        for part in chunks(keys):
            connection.execute(update(run).where(*open_ones, run.id.in_(part)).values(came=why))
    rest = LEARNED if candidate.answer == "trained" else candidate.answer
    connection.execute(update(run).where(*open_ones).values(came=rest))


def forget(connection: Connection, trajectory_ids: Sequence[str]) -> None:
    """Their trajectories are gone."""
    for part in chunks(trajectory_ids):
        connection.execute(delete(t.UseRow).where(t.UseRow.trajectory_id.in_(part)))


def _rows(connection: Connection, joins: Sequence[Joined]) -> dict[str, _Row]:
    row, found = t.TrajectoryRow, dict[str, _Row]()
    for part in chunks(sorted({joined.trajectory_id for joined in joins})):
        wanted: Any = select(row.id, row.outcome, row.revision, row.source).where(row.id.in_(part))
        found |= {one.id: _Row(*one) for one in connection.execute(wanted)}
    return found


def _said(connection: Connection, joins: Sequence[Joined]) -> dict[str, Feedback]:
    """The reports, but for what was heard before."""
    row, found = t.FeedbackRow, dict[str, Feedback]()
    for part in chunks([joined.id for joined in joins]):
        for body in connection.scalars(select(row.body).where(row.id.in_(part), row.effect == "")):
            if isinstance(said := decode(body), Feedback):
                found[said.id] = said
    return found

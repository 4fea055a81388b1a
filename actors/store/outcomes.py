"""What was reported of how runs went, in revisions, and what each revision came to.

    feedback -> `hear` -> a revision of its trajectory's outcome -> effects, one in each channel

(trajectory, revision) is the key of whatever uses an outcome: a revision is used once in each channel. A provisional
outcome that was ordered before anybody reported is revision 0, and stands in no trajectory's row. Readers of late
outcomes note how far they are in the transaction of what they made of them (`HeardUntil`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, get_args

import msgspec
from sqlalchemy import Connection, delete, exists, func, select, update

from actors.messages import Attributed, BatchOrder, Candidate, Feedback, Trajectory, decode, encode
from actors.store import tables as t
from actors.store.agents import LEARNED
from actors.store.engine import chunks, insert_new, table_of
from actors.store.records import Effect, Guessed, HeardUntil, Joined

Rank = Literal["opinion", "provisional", "verified", "reported"]
"""Evidence from the weakest to the strongest. `reported` and `provisional` are written here: sandbox outcomes are
verified by the environment and stand in their trajectory alone, for nobody corrects them."""
RANKS: tuple[Rank, ...] = get_args(Rank)
PROVISIONAL: Rank = "provisional"
CORRECTIONS = 3
"""Of one trajectory's outcome: each may be trained on, so nobody trains a run a thousand times by changing his mind."""
Word = Literal["told", "correction", "equal", "outdated", "not_final", "capped", "not_a_number"]
"""What a report did: it was the first, corrected it, or changed nothing: said the same, came after a newer one, is no
final outcome, is a correction too many, is no number."""
Channel = Literal["training", "kinds", "lessons", "tasks", "gate"]
NONE, ORDERED, TRAINED = "none", "ordered", "trained"
GIVEN_UP = "given up"
_FAILED = "failed"
"""Answer to an order that the learner parked."""
_HELD_OUT = "held out"
_TOO_LATE = {"no outcome": "too late"}
"""Who waited for an outcome and gave up dropped the run for want of one; seen from the outcome, it came too late."""


class Tally(msgspec.Struct):
    """What a transaction made of reports."""

    words: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Reports of how a run went, by what they did (`Word`)."""
    effects: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter[tuple[str, str]])
    """Revisions by channel and what they came to there: the effect, or why there is none."""

    def add(self, other: "Tally") -> None:
        """And of another."""
        self.words += other.words
        self.effects += other.effects


class _Known(msgspec.Struct):
    """A trajectory's row."""

    outcome: float | None
    revision: int
    dropped: str
    side_of: str
    source: str
    guessed: bool
    """It was ordered with a provisional outcome, which is revision 0."""


def begun(connection: Connection, rows: Sequence[dict[str, Any]], now: float, tally: Tally) -> None:
    """Trajectories were written: note the outcomes that they closed with."""
    told = [row for row in rows if row["source"] == "production" and _number(row["outcome"])]
    insert_new(
        connection,
        table_of(t.OutcomeRevisionRow),
        [
            _revision(row["id"], 0, row["outcome"], feedback_id="", received=row["ended"], late=False) for row in told
        ],
    )  # fmt: skip
    _settle_side_calls(connection, [row["id"] for row in told if row["side_of"]], now, tally)


def hear(connection: Connection, joins: Sequence[Joined], fresh: Collection[str], now: float, tally: Tally) -> None:
    """Feedback has found its trajectories: make of it what it is worth.

    Args:
        fresh: trajectories that were written in this transaction, with an outcome that may be of this feedback.
    """
    known = _known(connection, sorted({joined.trajectory_id for joined in joins}))
    said = _said(connection, [joined.id for joined in joins])
    feedback = table_of(t.FeedbackRow)
    for joined in joins:
        run, report = known.get(joined.trajectory_id), said.get(joined.id)
        if joined.outcome is None or run is None:
            continue
        word = _word(connection, joined, run, report, joined.trajectory_id in fresh, now, tally)
        if word is not None:
            tally.words[word] += 1
            connection.execute(update(feedback).where(feedback.c.id == joined.id).values(effect=word))


def _word(
    connection: Connection, joined: Joined, run: _Known, report: Feedback | None, fresh: bool, now: float, tally: Tally
) -> Word | None:
    received = now if report is None else report.received
    if fresh and run.outcome is not None and joined.outcome == run.outcome and run.revision == 0:
        # It closed with this and maybe others: of them the last final one is its outcome.
        if report is None or report.outcome != run.outcome:
            return None if report is not None and report.outcome is None else "outdated"
        row = t.OutcomeRevisionRow
        connection.execute(
            update(row)
            .where(row.trajectory_id == joined.trajectory_id, row.revision == 0, row.late.is_(False))
            .values(feedback_id=joined.id, received=received)
        )
        return "told"
    if not _number(joined.outcome):
        return "not_a_number"
    if run.source != "production" and run.outcome is not None:
        return None  # measured where it was played; nobody's agent did that
    if run.outcome is None:
        _adopt(connection, joined, run, int(run.guessed), received, now, tally)
        return "told"
    if joined.outcome == run.outcome:
        return "equal"
    if report is not None and not (report.kind == "outcome" and report.final):
        return "not_final"
    if received < _last_word(connection, joined.trajectory_id):
        return "outdated"
    if run.revision >= CORRECTIONS + run.guessed:
        return "capped"
    _adopt(connection, joined, run, run.revision + 1, received, now, tally)
    return "correction"


def _number(outcome: float | None) -> bool:
    return outcome is not None and isfinite(outcome)


def _last_word(connection: Connection, trajectory_id: str) -> float:
    """When the newest report came that its outcome rests on: one that said the same again counts as well."""
    row, told = t.FeedbackRow, t.OutcomeRevisionRow
    heard = select(func.max(row.received)).where(
        row.joined == trajectory_id, row.effect.in_(("told", "correction", "equal"))
    )
    first = select(func.max(told.received)).where(told.trajectory_id == trajectory_id, told.feedback_id != "")
    return max(connection.scalar(heard) or 0.0, connection.scalar(first) or 0.0)


def _adopt(
    connection: Connection, joined: Joined, run: _Known, revision: int, received: float, now: float, tally: Tally
) -> None:
    """The trajectory's row takes over what was said of it since it closed."""
    row, key, outcome = t.TrajectoryRow, joined.trajectory_id, joined.outcome
    assert outcome is not None
    body = connection.scalar(select(row.body).where(row.id == key))
    message = None if body is None else decode(body)
    if isinstance(message, Attributed):
        message = msgspec.structs.replace(message, trajectory=revised(message.trajectory, outcome, revision))
    elif isinstance(message, Trajectory):
        message = revised(message, outcome, revision)
    else:
        return
    connection.execute(
        update(row).where(row.id == key).values(outcome=outcome, revision=revision, body=encode(message))
    )  # fmt: skip
    run.outcome, run.revision = outcome, revision
    if run.source != "production":
        return
    told = _revision(key, revision, outcome, feedback_id=joined.id, received=received, late=True)
    insert_new(connection, table_of(t.OutcomeRevisionRow), [told])
    if run.dropped:
        settle(connection, {key: run.dropped}, now, tally)
    elif run.side_of:
        _settle_side_calls(connection, [key], now, tally)


def revised(run: Trajectory, outcome: float, revision: int) -> Trajectory:
    """`run` with this outcome."""
    return msgspec.structs.replace(run, outcome=outcome, outcome_revision=revision)


def settle(connection: Connection, reasons: Mapping[str, str], now: float, tally: Tally) -> None:
    """Nothing will be trained on what is known of these trajectories by now, but for what is in an order already."""
    told, row = t.OutcomeRevisionRow, t.EffectRow
    rows: list[dict[str, Any]] = []
    for part in chunks(sorted(reasons)):
        wanted = select(told.trajectory_id, told.revision).where(told.trajectory_id.in_(part))
        found = connection.execute(wanted.order_by(told.trajectory_id, told.revision)).all()
        last = {key: revision for key, revision in found}
        for key, revision in found:
            reason = reasons[key]
            over = revision < last[key]
            rows.append(
                _effect(key, revision, "training", NONE, "superseded" if over else _TOO_LATE.get(reason, reason), now)
            )
            if reason == _HELD_OUT:
                rows.append(_effect(key, revision, "gate", NONE if over else "exam", "superseded" if over else "", now))
        if gone := [key for key in part if reasons[key] == GIVEN_UP]:
            run = t.TrajectoryRow
            connection.execute(update(run).where(run.id.in_(gone), run.came == "").values(came=GIVEN_UP))
            open_ones = (row.trajectory_id.in_(gone), row.channel == "training", row.effect == ORDERED)
            changed = connection.execute(update(row).where(*open_ones).values(effect=NONE, detail=GIVEN_UP, at=now))
            tally.effects["training", GIVEN_UP] += changed.rowcount
    _write(connection, rows, tally)
    for one in rows:
        if one["channel"] == "gate" and one["effect"] == "exam" and one["revision"]:
            # The exam reads the row: it has the newest word, and no longer the one before.
            earlier = (row.trajectory_id == one["trajectory_id"], row.channel == "gate", row.revision < one["revision"])
            connection.execute(update(row).where(*earlier).values(effect=NONE, detail="superseded", at=now))


def _settle_side_calls(connection: Connection, ids: Sequence[str], now: float, tally: Tally) -> None:
    settle(connection, dict.fromkeys(ids, "side call"), now, tally)


def settle_dropped(connection: Connection, reason: str, now: float, tally: Tally) -> None:
    """`settle` for all that were dropped for `reason` without it."""
    told, run, row = t.OutcomeRevisionRow, t.TrajectoryRow, t.EffectRow
    there = exists().where(
        row.trajectory_id == told.trajectory_id, row.revision == told.revision, row.channel == "training"
    )
    wanted = select(told.trajectory_id).join(run, run.id == told.trajectory_id).where(run.dropped == reason, ~there)
    settle(connection, dict.fromkeys(connection.scalars(wanted), reason), now, tally)


def ordered(connection: Connection, order: BatchOrder, now: float, tally: Tally) -> None:
    """An order holds these revisions; what came before them, and is in none, never will be in one."""
    revisions = order.revisions or (0,) * len(order.trajectories)
    held = dict(zip(order.trajectories, revisions, strict=True))
    told, rows = t.OutcomeRevisionRow, list[dict[str, Any]]()
    for part in chunks(sorted(held)):
        for key, revision in connection.execute(
            select(told.trajectory_id, told.revision).where(told.trajectory_id.in_(part))
        ):
            if revision == held[key]:
                rows.append({**_effect(key, revision, "training", ORDERED, "", now), "order_id": order.id})
            elif revision < held[key]:
                rows.append(_effect(key, revision, "training", NONE, "superseded", now))
    _write(connection, rows, tally)


def answered(connection: Connection, candidate: Candidate, now: float, tally: Tally) -> None:
    """The learner has said what became of its orders."""
    if candidate.answer == "went_back" or not candidate.batch_ids:
        return
    _came(connection, candidate)
    row = table_of(t.EffectRow)
    trained = candidate.answer == TRAINED
    by_reason: dict[str, list[str]] = {}
    for key, why in candidate.no_gradient.items():
        by_reason.setdefault(f"no gradient: {why}", []).append(key)
    # What it answered before stays: an answer may come again. But an order that failed may be put back.
    of_order = (
        row.c.order_id.in_(candidate.batch_ids),
        (row.c.effect == ORDERED) | row.c.detail.in_((GIVEN_UP, f"no gradient: {_FAILED}")),
    )
    for why, keys in sorted(by_reason.items()):
        for part in chunks(keys):
            changed = connection.execute(
                update(row).where(*of_order, row.c.trajectory_id.in_(part)).values(effect=NONE, detail=why, at=now)
            )
            tally.effects["training", why] += changed.rowcount
    changed = connection.execute(
        update(row)
        .where(*of_order)
        .values(
            effect=TRAINED if trained else NONE, detail="" if trained else candidate.answer,
            version=candidate.version if trained else -1, at=now,
        )
    )  # fmt: skip
    tally.effects["training", candidate.answer] += changed.rowcount


def _came(connection: Connection, candidate: Candidate) -> None:
    """Note at each run of the orders what came of it; what was answered before stays, but for a failure."""
    run, member, by_reason = t.TrajectoryRow, t.BatchMemberRow, dict[str, list[str]]()
    for key, why in candidate.no_gradient.items():
        by_reason.setdefault(why, []).append(key)
    held = select(member.trajectory_id).where(member.batch_id.in_(candidate.batch_ids))
    open_ones = run.id.in_(held), run.came.in_(("", GIVEN_UP, _FAILED))
    for why, keys in by_reason.items():
        for part in chunks(keys):
            connection.execute(update(run).where(*open_ones, run.id.in_(part)).values(came=why))
    rest = LEARNED if candidate.answer == TRAINED else candidate.answer
    connection.execute(update(run).where(*open_ones).values(came=rest))


def guess(connection: Connection, guesses: Sequence[Guessed], now: float) -> None:
    """Runs are ordered with provisional outcomes: revision 0 of theirs. Comes before `ordered`.

    Where somebody has reported since the batch was drawn, the report becomes the next revision: the run will have been
    trained on what was guessed, and is corrected like any other.
    """
    told, run = t.OutcomeRevisionRow, t.TrajectoryRow
    for one in guesses:
        at = (told.trajectory_id == one.id, told.revision == 0)
        reported = connection.scalar(select(told.outcome).where(*at, told.rank != PROVISIONAL))
        body = connection.scalar(select(run.body).where(run.id == one.id))
        message = None if body is None else decode(body)
        if not isinstance(message, Attributed):
            continue  # forgotten meanwhile
        if reported is not None and message.trajectory.outcome_revision == 0:
            message = msgspec.structs.replace(message, trajectory=revised(message.trajectory, reported, 1))
            connection.execute(update(told).where(*at).values(revision=1))
            connection.execute(update(run).where(run.id == one.id).values(revision=1, body=encode(message)))
        row = _revision(one.id, 0, one.outcome, feedback_id="", received=now, late=False)
        insert_new(connection, table_of(told), [{**row, "rank": PROVISIONAL}])


def note(connection: Connection, effects: Sequence[Effect], now: float, tally: Tally) -> None:
    """Write effects, each once, of outcomes that are known; what was forgotten meanwhile has none."""
    told, there = t.OutcomeRevisionRow, set[tuple[str, int]]()
    for part in chunks(sorted({effect.id for effect in effects})):
        wanted = select(told.trajectory_id, told.revision).where(told.trajectory_id.in_(part))
        there |= {(key, revision) for key, revision in connection.execute(wanted)}
    rows = [
        _effect(one.id, one.revision, one.channel, one.effect, one.detail, now)
        for one in effects
        if (one.id, one.revision) in there
    ]
    _write(connection, rows, tally)


def heard(connection: Connection, until: HeardUntil) -> None:
    """`until.id` has taken in all up to there."""
    row, key, value = table_of(t.StateRow), cursor(until.id), str(until.sequence).encode()
    insert_new(connection, row, [{"key": key, "value": value}])
    connection.execute(update(row).where(row.c.key == key).values(value=value))


def cursor(reader: str) -> str:
    """Key of the state that says how far `reader` is."""
    return f"outcomes/{reader}"


def forget(connection: Connection, trajectory_ids: Sequence[str]) -> None:
    """Their trajectories are gone."""
    for row in (t.OutcomeRevisionRow, t.EffectRow):
        for part in chunks(trajectory_ids):
            connection.execute(delete(row).where(row.trajectory_id.in_(part)))


def _known(connection: Connection, ids: Sequence[str]) -> dict[str, _Known]:
    row, known = t.TrajectoryRow, dict[str, _Known]()
    columns = (row.id, row.outcome, row.revision, row.dropped, row.side_of, row.source)
    told, guesses = t.OutcomeRevisionRow, set[str]()
    for part in chunks(ids):
        guesses |= set(
            connection.scalars(
                select(told.trajectory_id).where(
                    told.trajectory_id.in_(part), told.revision == 0, told.rank == PROVISIONAL
                )
            )
        )
        for found in connection.execute(select(*columns).where(row.id.in_(part))):
            known[found.id] = _Known(
                outcome=found.outcome, revision=found.revision, dropped=found.dropped, side_of=found.side_of,
                source=found.source, guessed=found.id in guesses,
            )  # fmt: skip
    return known


def _said(connection: Connection, ids: Sequence[str]) -> dict[str, Feedback]:
    row, found = t.FeedbackRow, dict[str, Feedback]()
    for part in chunks(ids):
        for body in connection.scalars(select(row.body).where(row.id.in_(part))):
            said = decode(body)
            if isinstance(said, Feedback):
                found[said.id] = said
    return found


def _revision(
    key: str, revision: int, outcome: float, *, feedback_id: str, received: float, late: bool
) -> dict[str, Any]:
    return {
        "trajectory_id": key, "revision": revision, "outcome": outcome, "rank": RANKS[-1], "feedback_id": feedback_id,
        "received": received, "late": late,
    }  # fmt: skip


def _effect(key: str, revision: int, channel: Channel, effect: str, detail: str, now: float) -> dict[str, Any]:
    return {
        "trajectory_id": key, "revision": revision, "channel": channel, "effect": effect, "detail": detail,
        "order_id": "", "version": -1, "at": now,
    }  # fmt: skip


def _write(connection: Connection, rows: Sequence[dict[str, Any]], tally: Tally) -> None:
    """Insert effects that are not there yet, and count them; an order is none before its answer."""
    row, there = t.EffectRow, set[tuple[str, int, str]]()
    for part in chunks(sorted({one["trajectory_id"] for one in rows})):
        wanted = select(row.trajectory_id, row.revision, row.channel).where(row.trajectory_id.in_(part))
        there |= {(key, revision, channel) for key, revision, channel in connection.execute(wanted)}
    fresh = {(one["trajectory_id"], one["revision"], one["channel"]): one for one in reversed(rows)}
    new = [one for key, one in fresh.items() if key not in there]
    insert_new(connection, table_of(row), new)
    for one in new:
        if one["effect"] != ORDERED:
            tally.effects[one["channel"], one["detail"] if one["effect"] == NONE else one["effect"]] += 1

"""Questions about reported outcomes: who has to take in which, what is to be corrected, what all of it came to."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, exists, func, select

from actors.messages import Attributed, decode
from actors.store import tables as t
from actors.store.engine import chunks, table_of
from actors.store.outcomes import NONE, ORDERED, PROVISIONAL, TRAINED, Channel, cursor, revised


class LateOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome that came after its trajectory had closed."""

    sequence: int
    trajectory_id: str
    revision: int
    outcome: float


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was in an order, and whose outcome is another by now."""

    item: Attributed
    before: float | None
    """Outcome that it was trained on; None: nothing was learned from it."""


def late(connection: Connection, reader: str, channel: Channel, limit: int) -> list[LateOutcome]:
    """Outcomes that came after their trajectories had closed, and that `reader` has not taken in yet, oldest first."""
    told, row = t.OutcomeRevisionRow, t.EffectRow
    heard = connection.scalar(select(t.StateRow.value).where(t.StateRow.key == cursor(reader)))
    there = exists().where(
        row.trajectory_id == told.trajectory_id, row.revision == told.revision, row.channel == channel
    )
    wanted = (
        select(told.sequence, told.trajectory_id, told.revision, told.outcome)
        .where(told.late, told.sequence > int(heard or b"0"), ~there)
        .order_by(told.sequence)
        .limit(limit)
    )
    return [
        LateOutcome(sequence=sequence, trajectory_id=key, revision=revision, outcome=outcome)
        for sequence, key, revision, outcome in connection.execute(wanted)
    ]


def newest_late(connection: Connection, since: float, limit: int) -> list[str]:
    """Trajectories whose outcome came late, the newest `limit` reports from `since` on, oldest first."""
    told = t.OutcomeRevisionRow
    wanted = (
        select(told.trajectory_id).where(told.late, told.received >= since).order_by(told.sequence.desc()).limit(limit)
    )
    return list(dict.fromkeys(reversed(connection.scalars(wanted).all())))


def current(connection: Connection, items: Sequence[Attributed]) -> list[Attributed]:
    """`items` with the outcomes that their rows have by now: a record may be older on a stream than in the store."""
    row, known = t.TrajectoryRow, dict[str, tuple[float | None, int]]()
    ids = [item.id for item in items if item.trajectory.source == "production"]
    for part in chunks(ids):
        found = connection.execute(select(row.id, row.outcome, row.revision).where(row.id.in_(part)))
        known |= {key: (outcome, revision) for key, outcome, revision in found}
    fresh: list[Attributed] = []
    for item in items:
        outcome, revision = known.get(item.id, (None, 0))
        run = item.trajectory
        if outcome is not None and (run.outcome is None or revision > run.outcome_revision):
            item = msgspec.structs.replace(item, trajectory=revised(run, outcome, revision))
        fresh.append(item)
    return fresh


def corrections(connection: Connection, limit: int) -> list[Correction]:
    """Runs that an order held, and whose outcome was corrected since, in the order of the corrections; not those whose
    order is not answered: what there is to correct is not known before."""
    told, run, row = t.OutcomeRevisionRow, t.TrajectoryRow, t.EffectRow
    used = exists().where(
        row.trajectory_id == told.trajectory_id, row.channel == "training",
        (row.revision == told.revision) | (row.effect == ORDERED),
    )  # fmt: skip
    wanted = (
        select(told.trajectory_id, run.body)
        .join(run, and_(run.id == told.trajectory_id, run.revision == told.revision))
        .where(told.revision > 0, run.batch_id != "", ~used)
        .order_by(told.sequence)
        .limit(limit)
    )
    bodies = {key: decode(body) for key, body in connection.execute(wanted)}
    before: dict[str, float] = {}
    for part in chunks(list(bodies)):
        trained = (
            select(told.trajectory_id, told.outcome)
            .join(row, and_(row.trajectory_id == told.trajectory_id, row.revision == told.revision))
            .where(told.trajectory_id.in_(part), row.channel == "training", row.effect == TRAINED)
        )
        before |= {key: outcome for key, outcome in connection.execute(trained.order_by(told.revision))}
    return [
        Correction(item=item, before=before.get(key)) for key, item in bodies.items() if isinstance(item, Attributed)
    ]


def figures(connection: Connection) -> dict[str, Any]:
    """What reported outcomes came to: how many there are, had an effect, had none, or may still have one; effects by
    channel; why there was none."""
    told, row = t.OutcomeRevisionRow, t.EffectRow
    ranks = {rank: number for rank, number in connection.execute(select(told.rank, func.count()).group_by(told.rank))}
    guesses = ranks.pop(PROVISIONAL, 0)
    total = sum(ranks.values())
    runs = connection.scalar(
        select(func.count(told.trajectory_id.distinct())).where(told.rank != PROVISIONAL)
    ) or 0  # fmt: skip
    newer = table_of(told).alias()
    overruled = exists().where(newer.c.trajectory_id == told.trajectory_id, newer.c.revision == 1)
    alone = select(func.count()).select_from(told).where(told.revision == 0, told.rank == PROVISIONAL, ~overruled)
    unreported = (connection.scalar(alone) or 0) if guesses else 0
    guessed = exists().where(
        told.trajectory_id == row.trajectory_id, told.revision == row.revision, told.rank == PROVISIONAL
    )
    by: dict[tuple[str, str, str], int] = {
        (channel, effect, detail): number
        for channel, effect, detail, number in connection.execute(
            select(row.channel, row.effect, row.detail, func.count()).group_by(row.channel, row.effect, row.detail)
        )
    }
    keyed = select(row.trajectory_id, row.revision).distinct()
    worked = connection.scalar(
        select(func.count()).select_from(keyed.where(row.effect.not_in((NONE, ORDERED)), ~guessed).subquery())
    ) or 0  # fmt: skip
    helps = table_of(row).alias()
    other = exists().where(
        helps.c.trajectory_id == row.trajectory_id, helps.c.revision == row.revision,
        helps.c.effect.not_in((NONE, ORDERED)),
    )  # fmt: skip
    none = select(row.detail, func.count()).where(row.channel == "training", row.effect == NONE, ~other, ~guessed)
    reasons = {detail: number for detail, number in connection.execute(none.group_by(row.detail))}
    said = t.FeedbackRow
    without = ("equal", "outdated", "not_final", "capped", "not_a_number")
    ignored = {
        word: number
        for word, number in connection.execute(
            select(said.effect, func.count()).where(said.effect.in_(without)).group_by(said.effect)
        )
    }
    effects: dict[str, dict[str, int]] = {}
    for (channel, effect, detail), number in by.items():
        name = detail if effect == NONE else effect
        effects.setdefault(channel, {})
        effects[channel][name] = effects[channel].get(name, 0) + number
    settled = worked + sum(reasons.values())
    return {
        "reported": total,
        "runs_reported": runs,
        "provisional": unreported,
        "had_effect": worked,
        "none": sum(reasons.values()),
        "under_way": max(0, total - settled),
        "share": worked / settled if settled else None,
        "none_because": reasons,
        "reports_without_revision": ignored,
        "effects": effects,
    }

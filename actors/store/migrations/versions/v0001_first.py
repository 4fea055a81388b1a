"""The first tables: traffic, trajectories, lessons, tasks, orders, versions, and the ledger."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def _text(name: str, **given: object) -> "sa.Column[str]":
    return sa.Column(name, sa.String(), nullable=False, **given)  # type: ignore[arg-type]


def _long(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(), nullable=False)


def _number(name: str, **given: object) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer(), nullable=False, **given)  # type: ignore[arg-type]


def _time(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Float(), nullable=False)


def _flag(name: str) -> "sa.Column[bool]":
    return sa.Column(name, sa.Boolean(), nullable=False)


def _bytes(name: str = "body") -> "sa.Column[bytes]":
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def upgrade() -> None:
    """Make them."""
    _traffic()
    _learning()
    _policy()
    _ledger()


def _traffic() -> None:
    op.create_table(
        "exchanges", _text("id", primary_key=True), _text("tenant"), _text("response_id"), _text("explicit"),
        _text("trajectory_id"), _time("started"), _number("status"), _flag("stitched"), _flag("late"), _bytes(),
    )  # fmt: skip
    named = sa.text("response_id <> ''")
    op.create_index(
        "uq_exchanges_response", "exchanges", ["tenant", "response_id"], unique=True, sqlite_where=named,
        postgresql_where=named,
    )  # fmt: skip
    op.create_index("ix_exchanges_open", "exchanges", ["trajectory_id", "stitched", "started"])
    op.create_index("ix_exchanges_explicit", "exchanges", ["tenant", "explicit"])
    op.create_table(
        "feedback", _text("id", primary_key=True), _text("tenant"), _time("received"), _text("joined"), _bytes()
    )
    op.create_index("ix_feedback_joined", "feedback", ["joined"])


def _learning() -> None:
    op.create_table(
        "trajectories", _text("id", primary_key=True), _text("source"), _text("tenant"), _long("goal"),
        sa.Column("outcome", sa.Float(), nullable=True), _text("cluster"), _text("group_id"), _number("min_version"),
        _number("max_version"), _time("started"), _time("ended"), _text("closed_by"), _flag("trainable"),
        _text("why_not"), _flag("attributed"), _text("batch_id"), _text("dropped"), _bytes(),
    )  # fmt: skip
    op.create_index("ix_trajectories_recent", "trajectories", ["source", "ended"])
    op.create_index("ix_trajectories_pool", "trajectories", ["attributed", "batch_id", "dropped", "ended"])
    op.create_table(
        "experiences", _text("id", primary_key=True), _number("revision", primary_key=True, autoincrement=False),
        _text("tenant"), _text("state"), _time("updated"), _bytes(),
    )  # fmt: skip
    op.create_table(
        "tasks", _text("id", primary_key=True), _text("environment"), _text("origin"), _time("created"), _bytes()
    )
    op.create_table(
        "batches", _text("id", primary_key=True), _time("created"), _number("complete_groups"), _number("production"),
        _bytes(),
    )  # fmt: skip
    op.create_index("ix_batches_created", "batches", ["created"])
    op.create_table("batch_members", _text("batch_id", primary_key=True), _text("trajectory_id", primary_key=True))
    op.create_index("ix_batch_members_trajectory_id", "batch_members", ["trajectory_id"])


def _policy() -> None:
    op.create_table(
        "candidates", _text("id", primary_key=True), _number("version"), _number("parent"), _time("created"), _bytes()
    )
    op.create_index("ix_candidates_version", "candidates", ["version"])
    op.create_table("candidate_batches", _text("candidate_id", primary_key=True), _text("batch_id", primary_key=True))
    op.create_index("ix_candidate_batches_batch_id", "candidate_batches", ["batch_id"])
    op.create_table(
        "verdicts", _text("id", primary_key=True), _number("version"), _text("decision"), _time("created"), _bytes()
    )
    op.create_index("ix_verdicts_version", "verdicts", ["version"])
    op.create_table(
        "servings", _text("id", primary_key=True), _text("engine"), _number("version"), _text("result"),
        _time("since"), _bytes(),
    )  # fmt: skip
    op.create_index("ix_servings_engine", "servings", ["engine", "since"])
    op.create_table("directives", _text("id", primary_key=True), _text("kind"), _time("created"), _bytes())


def _ledger() -> None:
    op.create_table("processed", _text("actor", primary_key=True), _text("input_id", primary_key=True), _time("at"))
    op.create_index("ix_processed_at", "processed", ["at"])
    op.create_table(
        "outbox", _number("sequence", primary_key=True, autoincrement=True), _text("actor"), _text("output_id"),
        _text("subject"), _bytes("data"), _flag("published"), _time("at"),
    )  # fmt: skip
    op.create_index("uq_outbox", "outbox", ["actor", "output_id"], unique=True)
    op.create_index("ix_outbox_open", "outbox", ["published", "actor", "sequence"])
    op.create_table(
        "failures", _text("actor", primary_key=True), _text("input_id", primary_key=True), _number("failures"),
        _long("error"), _time("at"),
    )  # fmt: skip
    op.create_table(
        "dead_letters", _text("id", primary_key=True), _text("actor"), _text("input_id"), _text("subject"),
        _bytes("data"), _long("error"), _time("at"),
    )  # fmt: skip
    op.create_table("state", _text("key", primary_key=True), _bytes("value"))

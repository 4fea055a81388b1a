"""The tables: one per kind of record, indexed columns beside the msgpack body that they were taken from.

The body is the truth; columns exist to find rows. What comes later than a record (the trajectory of an exchange, a late
outcome, the batch that used a trajectory) is a column that is updated.
"""

from sqlalchemy import Boolean, Double, Float, Index, LargeBinary, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from actors.store.columns import Characters, LongCharacters, whole


class Base(DeclarativeBase):
    """Metadata of all tables; types that SQLite and PostgreSQL agree on (`actors.store.columns`)."""

    type_annotation_map = {
        str: Characters(), float: Float().with_variant(Double(), "postgresql"), int: whole(), bytes: LargeBinary(),
        bool: Boolean(),
    }  # fmt: skip


def _some(name: str, where: str, *columns: str) -> Index:
    """An index over the few rows that are asked for, by the words that they are asked for with."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class ExchangeRow(Base):
    """One LLM call."""

    __tablename__ = "exchanges"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    response_id: Mapped[str]
    """The engine's name of its answer. vLLM builds it from `X-Request-Id`, so one that an agent sends with every call
    comes again: the record's own id alone says which call it is."""
    explicit: Mapped[str]
    """Trajectory, or conversation, that the call named itself."""
    custom_id: Mapped[str] = mapped_column(server_default="")
    """Its caller's own id of the call; empty if it gave none. Nothing keeps callers from giving one twice."""
    caller: Mapped[str]
    """Id of the agent key that it came with; empty without one."""
    trajectory_id: Mapped[str]
    """Trajectory that it ended up in; empty while open."""
    started: Mapped[float]
    status: Mapped[int]
    stitched: Mapped[bool]
    """A successful chat call: one that is, or will be, a step."""
    body: Mapped[bytes]
    __table_args__ = (
        _some("ix_exchanges_response", "response_id <> ''", "tenant", "response_id"),
        _some("ix_exchanges_caller", "caller <> ''", "caller"),
        Index("ix_exchanges_open", "trajectory_id", "stitched", "started"),
        Index("ix_exchanges_explicit", "tenant", "explicit"),
        _some("ix_exchanges_custom", "custom_id <> ''", "tenant", "custom_id"),
        _some("ix_exchanges_failed", "status >= 400", "status"),
    )


class FeedbackRow(Base):
    """An outcome or rating."""

    __tablename__ = "feedback"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    received: Mapped[float]
    joined: Mapped[str] = mapped_column(index=True)
    """Trajectory that it belongs to; empty while nobody knows."""
    exchange_id: Mapped[str | None]
    """This and the next three: what it names, while it waits for its trajectory; None else (`actors.store.waiting`)."""
    response_id: Mapped[str | None]
    custom_id: Mapped[str | None]
    trajectory_id: Mapped[str | None]
    effect: Mapped[str] = mapped_column(server_default="")
    """What it did to its trajectory's outcome (`actors.store.outcomes.Did`); empty if it says nothing of it."""
    body: Mapped[bytes]
    __table_args__ = tuple(
        _some(f"ix_feedback_{name}", f"{name} IS NOT NULL", name)
        for name in ("exchange_id", "response_id", "custom_id", "trajectory_id")
    )


class TrajectoryRow(Base):
    """A closed trajectory, attributed or not yet; `body` is a Trajectory or an Attributed accordingly."""

    __tablename__ = "trajectories"
    id: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    tenant: Mapped[str]
    caller: Mapped[str] = mapped_column(server_default="")
    """Id of the agent key of its first call; empty without one."""
    goal: Mapped[str] = mapped_column(LongCharacters())
    outcome: Mapped[float | None]
    revision: Mapped[int] = mapped_column(server_default="0")
    """Of the outcome: the latest, 0 for the first."""
    told: Mapped[float | None]
    """When the report came that the outcome is of, if that was after the end; else None."""
    guessed: Mapped[float | None]
    """Provisional outcome that it was ordered with; `outcome` has what was reported alone."""
    cluster: Mapped[str]
    min_version: Mapped[int]
    max_version: Mapped[int]
    started: Mapped[float]
    ended: Mapped[float]
    closed_by: Mapped[str]
    trainable: Mapped[bool]
    why_not: Mapped[str]
    side_of: Mapped[str] = mapped_column(server_default="")
    """Trajectory whose side call it is; empty for a main line."""
    continues: Mapped[str]
    """Trajectory whose conversation it goes on with; empty for none."""
    attributed: Mapped[bool]
    batch_id: Mapped[str]
    """Batch that used it; empty if none did."""
    dropped: Mapped[str]
    """Why no batch will use it; empty while one may."""
    came: Mapped[str]
    """What came of it in a batch: learned, or why nothing was; empty before an answer."""
    agent: Mapped[str]
    """Whose run it is; empty for nobody's."""
    label: Mapped[str]
    """The agent's name for people."""
    calls: Mapped[int]
    unfit: Mapped[int]
    """Of the calls, those that may not be trained on."""
    unfit_why: Mapped[str]
    """Why, the commonest reason."""
    body: Mapped[bytes]
    __table_args__ = (
        # All that `actors.store.agents` asks for, so that it reads no row.
        Index(
            "ix_trajectories_agents",
            *("ended", "agent", "dropped", "came", "unfit_why", "batch_id", "outcome", "calls", "unfit", "label"),
        ),
        Index("ix_trajectories_recent", "source", "ended"),
        # All that the gate's evidence is chosen by, so that looking for it reads no row.
        Index("ix_trajectories_exam", "source", "attributed", "ended", "id", "tenant", "caller", "outcome"),
        Index("ix_trajectories_pool", "attributed", "batch_id", "dropped", "ended"),
        _some("ix_trajectories_dropped", "dropped <> ''", "dropped"),
        _some("ix_trajectories_side", "side_of <> ''", "side_of"),
        _some("ix_trajectories_continues", "continues <> ''", "continues"),
        _some("ix_trajectories_told", "told IS NOT NULL", "told"),
        _some("ix_trajectories_judged", "outcome IS NOT NULL", "source", "max_version", "ended"),
    )


class UseRow(Base):
    """A revision of a run's outcome that an actor has taken in: it does so once, whichever record tells of it first."""

    __tablename__ = "uses"
    trajectory_id: Mapped[str] = mapped_column(primary_key=True)
    actor: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class JudgementRow(Base):
    """What a judge said of some content, so that the same is not paid for twice."""

    __tablename__ = "judgements"
    id: Mapped[str] = mapped_column(primary_key=True)
    """Of the content (`actors.credit.judgement_cache`)."""
    tenant: Mapped[str] = mapped_column(index=True)
    made: Mapped[float] = mapped_column(index=True)
    """Unix seconds."""
    body: Mapped[bytes]


class ExperienceRow(Base):
    """One revision of a lesson."""

    __tablename__ = "experiences"
    id: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    state: Mapped[str]
    updated: Mapped[float]
    body: Mapped[bytes]


class EmbeddingRow(Base):
    """The vector of a lesson's text, so that a restart need not embed it again; can be lost at any time."""

    __tablename__ = "embeddings"
    embedder: Mapped[str] = mapped_column(primary_key=True)
    """Id of the model that made it."""
    dimension: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    digest: Mapped[str] = mapped_column(primary_key=True)
    """Of the text."""
    vector: Mapped[bytes]
    """float32, as the machine has it."""


class TaskRow(Base):
    """A task for the sandbox, and how it fared there (see `actors.store.tasks`)."""

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(primary_key=True)
    environment: Mapped[str]
    origin: Mapped[str]
    created: Mapped[float]
    body: Mapped[bytes]
    state: Mapped[str] = mapped_column(server_default="offered")
    reason: Mapped[str] = mapped_column(server_default="")
    tried: Mapped[int] = mapped_column(server_default="0")
    solved: Mapped[int] = mapped_column(server_default="0")
    successes: Mapped[float] = mapped_column(server_default="0")
    failures: Mapped[float] = mapped_column(server_default="0")
    lost: Mapped[int] = mapped_column(server_default="0")
    agreed: Mapped[int] = mapped_column(server_default="0")
    last: Mapped[float] = mapped_column(server_default="0")
    again: Mapped[float] = mapped_column(server_default="0")
    __table_args__ = (Index("ix_tasks_state", "state", "last"),)


class TaskSourceRow(Base):
    """What a task was made from: ids of trajectories, or of an exploration."""

    __tablename__ = "task_sources"
    task_id: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(primary_key=True, index=True)


class BatchRow(Base):
    """An order to train."""

    __tablename__ = "batches"
    id: Mapped[str] = mapped_column(primary_key=True)
    created: Mapped[float] = mapped_column(index=True)
    body: Mapped[bytes]


class BatchMemberRow(Base):
    """Which trajectories an order holds."""

    __tablename__ = "batch_members"
    batch_id: Mapped[str] = mapped_column(primary_key=True)
    trajectory_id: Mapped[str] = mapped_column(primary_key=True, index=True)


class CandidateRow(Base):
    """A weight version."""

    __tablename__ = "candidates"
    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(index=True)
    parent: Mapped[int]
    created: Mapped[float]
    body: Mapped[bytes]


class CandidateBatchRow(Base):
    """Which orders a version came from."""

    __tablename__ = "candidate_batches"
    candidate_id: Mapped[str] = mapped_column(primary_key=True)
    batch_id: Mapped[str] = mapped_column(primary_key=True, index=True)


class VerdictRow(Base):
    """What the gate said."""

    __tablename__ = "verdicts"
    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(index=True)
    decision: Mapped[str]
    created: Mapped[float] = mapped_column(index=True)
    body: Mapped[bytes]


class ServingRow(Base):
    """What an engine served from when on."""

    __tablename__ = "servings"
    id: Mapped[str] = mapped_column(primary_key=True)
    engine: Mapped[str]
    version: Mapped[int] = mapped_column(index=True)
    result: Mapped[str]
    since: Mapped[float] = mapped_column(index=True)
    body: Mapped[bytes]
    __table_args__ = (Index("ix_servings_engine", "engine", "since"),)


class DirectiveRow(Base):
    """An order of the sentinel or of an operator."""

    __tablename__ = "directives"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    created: Mapped[float] = mapped_column(index=True)
    body: Mapped[bytes]


class AuditRow(Base):
    """An entry of the audit trail (`actors.store.audit`); never changed, never deleted."""

    __tablename__ = "audit"
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[float]
    kind: Mapped[str]
    subject: Mapped[str]
    digest: Mapped[str]
    previous: Mapped[str]
    hash: Mapped[str]
    __table_args__ = (Index("uq_audit_subject", "kind", "subject", unique=True),)


class ForgottenRow(Base):
    """A tombstone: what was forgotten does not come back over the streams."""

    __tablename__ = "forgotten"
    kind: Mapped[str] = mapped_column(primary_key=True)
    """"id" of a record; "tenant" or "caller": everything of theirs from before `before`."""
    name: Mapped[str] = mapped_column(primary_key=True)
    before: Mapped[float]
    """Unix seconds; 0 for ids."""
    at: Mapped[float] = mapped_column(index=True)


class ProcessedRow(Base):
    """An input that an actor is done with."""

    __tablename__ = "processed"
    actor: Mapped[str] = mapped_column(primary_key=True)
    input_id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(index=True)


class OutboxRow(Base):
    """An output, kept until the bus has it; afterwards its id alone."""

    __tablename__ = "outbox"
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    actor: Mapped[str]
    output_id: Mapped[str]
    subject: Mapped[str]
    data: Mapped[bytes]
    published: Mapped[bool]
    at: Mapped[float]
    __table_args__ = (
        Index("uq_outbox", "actor", "output_id", unique=True),
        Index("ix_outbox_open", "published", "actor", "sequence"),
    )


class DeadLetterRow(Base):
    """A parked record."""

    __tablename__ = "dead_letters"
    id: Mapped[str] = mapped_column(primary_key=True)
    actor: Mapped[str]
    input_id: Mapped[str]
    subject: Mapped[str]
    data: Mapped[bytes]
    error: Mapped[str] = mapped_column(LongCharacters())
    at: Mapped[float]


class StateRow(Base):
    """Small things that an actor wants to find again."""

    __tablename__ = "state"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class LeaseRow(Base):
    """Who may do what one alone may (`actors.store.leases`)."""

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    about: Mapped[str]
    epoch: Mapped[int]
    since: Mapped[float]
    expires: Mapped[float]
    """Unix seconds of the database's clock; 0: free."""
    # The index is what makes a change of the epoch wait for those who hold the row FOR KEY SHARE.
    __table_args__ = (Index("uq_leases_epoch", "name", "epoch", unique=True),)

"""The tables: one per kind of record, indexed columns beside the msgpack body that they were taken from.

The body is the truth; columns exist to find rows. What comes later than a record (the trajectory of an exchange, a late
outcome, the batch that used a trajectory) is a column that is updated.
"""

import re
from typing import Annotated, Any

from sqlalchemy import Double, Index, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from actors.store.columns import WHOLE, Characters

Key = Annotated[str, mapped_column(primary_key=True)]
Time = Annotated[float, mapped_column(index=True)]
Version = Annotated[int, mapped_column(index=True)]
Link = Annotated[str, mapped_column(primary_key=True, index=True)]
"""A key that is looked for by itself too."""
Number = Annotated[int, mapped_column(primary_key=True, autoincrement=False)]


class Base(DeclarativeBase):
    """Metadata of all tables; types that SQLite and PostgreSQL agree on (`actors.store.columns`)."""

    type_annotation_map = {str: Characters(), float: Double(), int: WHOLE}

    def __init_subclass__(cls, named: str = "", **options: Any) -> None:
        """A table is named as its class, or as it is `named`."""
        cls.__tablename__ = named or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        super().__init_subclass__(**options)


class Record(Base):
    """Messages, or what a judge said, by id."""

    __abstract__ = True
    id: Mapped[str] = mapped_column(primary_key=True, sort_order=-1)
    body: Mapped[bytes] = mapped_column(sort_order=1)
    """The last column: reading another one reads nothing of it."""


def _some(name: str, where: str, *columns: str) -> Index:
    """An index over the few rows that are asked for, by the words that they are asked for with."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class Calls(Record, named="exchanges"):
    """One LLM call."""

    tenant: Mapped[str]
    response_id: Mapped[str]
    """The engine's name of its answer; it may come again, as vLLM builds it from the agent's `X-Request-Id`."""
    explicit: Mapped[str]
    """Trajectory, or conversation, that the call named itself."""
    custom_id: Mapped[str]
    """Its caller's own id of the call, maybe given twice; empty if it gave none."""
    caller: Mapped[str]
    trajectory_id: Mapped[str]
    """Trajectory that it ended up in; empty while open."""
    beside: Mapped[bool]
    """It is off the main line of that, and none of its steps."""
    started: Mapped[float]
    status: Mapped[int]
    stitched: Mapped[bool]
    """A successful chat call: one that is, or will be, a step."""
    __table_args__ = (
        _some("ix_exchanges_response", "response_id <> ''", "tenant", "response_id"),
        _some("ix_exchanges_caller", "caller <> ''", "caller"),
        Index("ix_exchanges_open", "trajectory_id", "stitched", "started"),
        Index("ix_exchanges_explicit", "tenant", "explicit"),
        _some("ix_exchanges_custom", "custom_id <> ''", "tenant", "custom_id"),
        _some("ix_exchanges_failed", "status >= 400", "status"),
        _some("ix_exchanges_beside", "beside", "started"),
    )


class Reports(Record, named="feedback"):
    """An outcome or rating."""

    tenant: Mapped[str]
    received: Mapped[float]
    joined: Mapped[str] = mapped_column(index=True)
    """Its trajectory; empty while nobody knows."""
    exchange_id: Mapped[str | None]
    """This and the next three: what it names while it waits for its trajectory (`actors.store.waiting`); else None."""
    response_id: Mapped[str | None]
    custom_id: Mapped[str | None]
    trajectory_id: Mapped[str | None]
    effect: Mapped[str]
    """What it did to its trajectory's outcome (`actors.store.outcomes.Did`); empty if it says nothing of it."""
    __table_args__ = tuple(
        _some(f"ix_feedback_{name}", f"{name} IS NOT NULL", name)
        for name in ("exchange_id", "response_id", "custom_id", "trajectory_id")
    )


class Runs(Record, named="trajectories"):
    """A closed trajectory, attributed or not yet; `body` is a Trajectory or an Attributed accordingly."""

    source: Mapped[str]
    tenant: Mapped[str]
    caller: Mapped[str]
    """Id of the agent key of its first call; empty without one."""
    goal: Mapped[str]
    outcome: Mapped[float | None]
    revision: Mapped[int]
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
    continues: Mapped[str]
    """Trajectory whose conversation it goes on with; empty for none."""
    attributed: Mapped[bool]
    batch_id: Mapped[str]
    """The one order that holds it; empty if none does."""
    came: Mapped[str]
    """What came of it: learned, why nothing was, or why no batch will use it; empty while that is open."""
    agent: Mapped[str]
    """Whose run it is; empty for nobody's."""
    label: Mapped[str]
    calls: Mapped[int]
    unfit: Mapped[int]
    """Of the calls, those that may not be trained on."""
    unfit_why: Mapped[str]
    __table_args__ = (
        # All that `actors.store.agents` asks for, so that it reads no row.
        Index(
            "ix_trajectories_agents",
            *("ended", "agent", "came", "unfit_why", "batch_id", "outcome", "calls", "unfit", "label"),
        ),
        Index("ix_trajectories_recent", "source", "ended"),
        # All that the gate's evidence is chosen by, so that looking for it reads no row.
        Index("ix_trajectories_exam", "source", "attributed", "ended", "id", "tenant", "caller", "outcome"),
        Index("ix_trajectories_pool", "attributed", "batch_id", "came", "ended"),
        _some("ix_trajectories_batch", "batch_id <> ''", "batch_id"),
        _some("ix_trajectories_dropped", "came <> '' AND batch_id = ''", "came"),
        _some("ix_trajectories_continues", "continues <> ''", "continues"),
        _some("ix_trajectories_told", "told IS NOT NULL", "told"),
        _some("ix_trajectories_judged", "outcome IS NOT NULL", "source", "max_version", "ended"),
    )


IN_AN_ORDER = Runs.batch_id != ""
"""In the words of its index: SQLite takes an order's id for no reason to use it, and would read every run."""


class Uses(Base):
    """A revision of a run's outcome that an actor has taken in: it does so once, whichever record tells of it first."""

    trajectory_id: Mapped[Key]
    actor: Mapped[Key]
    revision: Mapped[Number]


class Judgements(Record):
    """What a judge said of some content, so that the same is not paid for twice."""

    tenant: Mapped[str] = mapped_column(index=True)
    made: Mapped[Time]


class Lessons(Record, named="experiences"):
    """One revision of a lesson."""

    revision: Mapped[Number]
    state: Mapped[str]
    updated: Mapped[float]


class Embeddings(Base):
    """The vector of a lesson's text, so that a restart need not embed it again; can be lost at any time."""

    embedder: Mapped[Key]
    dimension: Mapped[Number]
    digest: Mapped[Key]
    vector: Mapped[bytes]
    """float32, as the machine has it."""


class Tasks(Record):
    """A task for the sandbox, and how it fared there: `body` is an `actors.store.tasks.TaskState`."""

    origin: Mapped[str]
    created: Mapped[float]
    state: Mapped[str]
    last: Mapped[float]
    __table_args__ = (Index("ix_tasks_state", "state", "last"),)


class TaskSources(Base):
    """What a task was made from: ids of trajectories, or of an exploration."""

    task_id: Mapped[Key]
    source: Mapped[Link]


class Batches(Record):
    """An order to train."""

    created: Mapped[Time]


class Candidates(Record):
    """A weight version."""

    version: Mapped[Version]
    parent: Mapped[int]
    created: Mapped[float]


class CandidateBatches(Base):
    """Which orders a version came from."""

    candidate_id: Mapped[Key]
    batch_id: Mapped[Link]


class Verdicts(Record):
    """What the gate said."""

    version: Mapped[Version]
    decision: Mapped[str]
    created: Mapped[Time]


class Servings(Record):
    """What an engine served from when on."""

    engine: Mapped[str]
    version: Mapped[Version]
    result: Mapped[str]
    since: Mapped[Time]
    __table_args__ = (Index("ix_servings_engine", "engine", "since"),)


class Directives(Record):
    """An order of the sentinel or of an operator."""

    kind: Mapped[str]
    created: Mapped[Time]


class AuditTrail(Base, named="audit"):
    """An entry of the audit trail (`actors.store.audit`); never changed, never deleted."""

    sequence: Mapped[Number]
    at: Mapped[float]
    kind: Mapped[str]
    subject: Mapped[str]
    digest: Mapped[str]
    previous: Mapped[str]
    hash: Mapped[str]
    __table_args__ = (Index("uq_audit_subject", "kind", "subject", unique=True),)


class Forgotten(Base):
    """A tombstone: what was forgotten does not come back over the streams."""

    kind: Mapped[Key]
    """"id" of a record; "tenant" or "caller": everything of theirs from before `at`."""
    name: Mapped[Key]
    at: Mapped[Time]


class Processed(Base):
    """An input that an actor is done with."""

    actor: Mapped[Key]
    input_id: Mapped[Key]
    at: Mapped[Time]


class Outbox(Base):
    """An output, kept until the bus has it; afterwards its id alone."""

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


class DeadLetters(Base):
    """A parked record."""

    id: Mapped[Key]
    actor: Mapped[str]
    input_id: Mapped[str]
    subject: Mapped[str]
    data: Mapped[bytes]
    error: Mapped[str]
    at: Mapped[float]


class State(Base):
    """Small things that an actor wants to find again."""

    key: Mapped[Key]
    value: Mapped[bytes]


class Leases(Base):
    """Who may do what one alone may (`actors.store.leases`)."""

    name: Mapped[Key]
    holder: Mapped[str]
    about: Mapped[str]
    epoch: Mapped[int]
    expires: Mapped[float]
    """Unix seconds of the database's clock; 0: free."""
    # The index is what makes a change of the epoch wait for those who hold the row FOR KEY SHARE.
    __table_args__ = (Index("uq_leases_epoch", "name", "epoch", unique=True),)

"""`Store`: the one place where evolved keeps what it knows; SQLite in a file, or PostgreSQL.

It is the system's `Ledger` (what is done, what is still to be published, what failed) and the repository that actors,
gate and dashboard ask. Statements run in worker threads, many rows a transaction, one writer at a time
(`actors.store.database`); so it works under trio and asyncio alike. Use one `Store` from one event loop.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog
from sqlalchemy import Connection, delete, select

from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    Experience,
    Message,
    OutcomeChanged,
    Serving,
    Task,
)
from actors.store import agents, erasing, judgements, ledger, memory, outcomes, reading, saving, stories
from actors.store import tables as t
from actors.store import tasks as pool
from actors.store.audit import START, Head, head
from actors.store.database import Database
from actors.store.erasing import Scope, Selector
from actors.store.judgements import Judgement
from actors.store.leases import Lead
from actors.store.postgresql import check
from actors.store.saving import save
from actors.store.schema import create
from actors.store.tasks import TaskState
from actors.system.outgoing import Outgoing

P = ParamSpec("P")
R = TypeVar("R")
_log = structlog.get_logger(__name__)


def _question(
    work: Callable[Concatenate[Connection, P], R],
) -> "Callable[Concatenate[Store, P], CoroutineType[Any, Any, R]]":
    """A function of a connection that only reads, as a method of the store: one transaction each."""

    async def answer(store: "Store", *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.ask(lambda connection: work(connection, *args, **kwargs))

    return answer


class Store:
    """Ledger and repository in one database. Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str, *, clock: Callable[[], float], password_file: str = "") -> None:
        """Nothing is opened yet: see `open`.

        Args:
            url: `sqlite:///relative.db`, `sqlite:////absolute.db`, or `postgresql+psycopg://user@host/database`.
            clock: unix seconds, for the times at which rows were written.
            password_file: file with the password of PostgreSQL's user; read anew for every connection.
        """
        self._database = Database(url, password_file)
        self._read, self._write = self._database.read, self._database.write
        self.ask, self.change = self._database.read, self._database.write
        """For functions of a connection that are no method here, such as those of `actors.store.retention`: one
        transaction each, that only reads, or that writes."""
        self._clock = clock
        self.edits = 0
        """How often people changed what actors keep in memory (`actors.system.outbox.Ledger`)."""
        self.forgotten_refused = 0
        """Records that actors were not let write because they rest on something forgotten."""
        self.reports = Counter[str]()
        """Reports of how runs went, by what they did (`actors.store.outcomes.Did`)."""
        self.audit_head = Head(0, START)
        """Where the audit trail ends (see `actors.store.audit`)."""

    async def open(self) -> None:
        """Create the tables in an empty database.

        Raises:
            SchemaMismatch: written by an evolved with other tables.
            StoreMisconfigured: a database that cannot hold all text.
        """
        self.audit_head = await self._write(_create)

    def written_by(self, lead: Lead) -> None:
        """From now on only while `lead` is had."""
        self._database.lead = lead

    async def insist(self) -> None:
        """Come back only if the lead is still had, by the database's word: before what no transaction can take back."""
        await self._write(lambda connection: None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._database.aclose()

    # The ledger (see `actors.system.outbox.Ledger`)

    processed = _question(ledger.processed)

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        saved = await self._write(ledger.commit, actor, inputs, records, outputs, self._clock())
        if saved is None:
            return None
        self.forgotten_refused += saved.refused
        self.reports += saved.did
        self._audited(saved.head)
        return saved.outputs

    unpublished = _question(ledger.unpublished)

    async def published(self, actor: str, ids: Sequence[str]) -> None:
        await self._write(ledger.published, actor, ids)

    async def park(self, actor: str, input_id: str, subject: str, data: bytes, error: str) -> bool:
        return await self._write(ledger.park, actor, input_id, subject, data, error, self._clock())

    async def revive(self, dead_id: str) -> Outgoing | None:
        """Take a parked record's mark away, so that it will be handled; returns what to publish, None if unknown.

        Publish it, then call `delete_dead_letter`: until then it stays in the list and may be revived again.
        """
        return await self._write(ledger.revive, dead_id, self._clock())

    async def delete_dead_letter(self, dead_id: str) -> None:
        """Forget a parked record."""
        await self._write(lambda c: c.execute(delete(t.DeadLetterRow).where(t.DeadLetterRow.id == dead_id)))

    async def prune(self, before: float) -> int:
        """Forget marks and published outputs from before `before` (unix seconds); returns how many.

        Must be further back than the oldest record that a stream can still deliver.
        """
        return await self._write(ledger.prune, before)

    # Records

    async def save(self, records: Sequence[Message]) -> Sequence[OutcomeChanged]:
        """Write records outside of any actor's commit, e.g. in tools and tests; what reports among them changed, which
        nobody publishes."""
        saved = await self._write(save, records, self._clock())
        self.reports += saved.did
        self._audited(saved.head)
        return saved.changed

    open_exchanges = _question(reading.open_exchanges)
    exchanges = _question(reading.exchanges)
    unjoined_feedback = _question(reading.unjoined_feedback)
    feedback_for = _question(reading.feedback_for)
    find_trajectory = _question(reading.find_trajectory)
    step_feedback = _question(reading.step_feedback)
    trajectory = _question(reading.trajectory)
    recent_attributed = _question(reading.recent_attributed)

    async def exam(self, *, reported: bool, limit: int) -> list[Attributed]:
        return await self._read(reading.exam, held_out, reported, limit)

    agents = _question(agents.agents)
    recent_closed = _question(reading.recent_closed)
    unused = _question(reading.unused)
    unreported = _question(reading.unreported)

    async def drop_unused(self, room: int, reason: str, *, reported: bool = True) -> int:
        """Drop for `reason` all that `unused(room)` leaves out; returns how many."""
        return await self._write(saving.drop_unused, room, reason, reported)

    newest_late = _question(outcomes.newest_late)
    latest = _question(outcomes.latest)
    settled = _question(reading.settled)
    recent_outcomes = _question(reading.recent_outcomes)
    judged_outcomes = _question(reading.judged_outcomes)
    reporting_parties = _question(reading.reporting_parties)
    experiences = _question(reading.experiences)

    async def replace_experiences(self, lessons: Sequence[Experience]) -> None:
        """Put `lessons` in the place of all their revisions."""
        await self._write(memory.replace, lessons)

    revisions = _question(memory.revisions)
    experiences_at = _question(memory.experiences_at)
    embeddings = _question(memory.embeddings)

    async def save_embeddings(self, embedder: str, dimension: int, vectors: Mapping[str, bytes]) -> None:
        await self._write(memory.save_embeddings, embedder, dimension, vectors)

    async def prune_embeddings(self, embedder: str, dimension: int, keep: Collection[str]) -> int:
        return await self._write(memory.prune_embeddings, embedder, dimension, keep)

    async def offer(self, tasks: Sequence[Task], made_from: Collection[str] = ()) -> int:
        return await self._write(pool.offer, tasks, made_from, pool.ROOM, self._clock())

    task_states = _question(pool.task_states)

    async def mark_tasks(self, states: Sequence[TaskState]) -> None:
        await self._write(pool.mark, states)

    task_counts = _question(pool.task_counts)
    candidates = _question(reading.candidates)
    head = _question(reading.head)
    verdicts = _question(reading.verdicts)
    servings = _question(reading.servings)

    first_served = _question(stories.first_served)

    async def last_serving(self, engine: str) -> Serving | None:
        """What `engine` was last made to serve; a swap that was refused or rolled back left what was there."""
        for serving in await self.servings(engine, 100):
            if serving.result in ("started", "swapped"):
                return serving
        return None

    directives = _question(reading.directives)
    frozen = _question(reading.frozen)
    closed_runs = _question(reading.closed_runs)
    failed_calls = _question(reading.failed_calls)
    batches = _question(reading.batches)
    outstanding = _question(reading.outstanding)

    orders_of = _question(stories.orders_of)
    dead_letters = _question(reading.dead_letters)

    async def counts(self) -> dict[str, int]:
        return {
            **await self._read(reading.counts),
            "forgotten_refused": self.forgotten_refused,
        }

    async def state_get(self, key: str) -> bytes | None:
        return await self._read(lambda c: c.scalar(select(t.StateRow.value).where(t.StateRow.key == key)))

    async def state_put(self, key: str, value: bytes) -> None:
        await self._write(ledger.put_state, key, value)

    # Lessons by hand, and what is said of them

    revisions_of = _question(reading.revisions_of)

    async def revise(self, experience_id: str, change: Callable[[Experience], Experience]) -> Experience | None:
        """Write `change` of the latest revision as the next one, whoever else revises; None if there is no such lesson.

        Raises:
            Exception: whatever `change` raises; nothing was written then.
        """
        return await self._write(saving.revise, experience_id, change, self._clock())

    async def add_experiences(self, lessons: Sequence[Experience]) -> set[str]:
        """Write those that no lesson has the id of yet, all or none; ids of the others."""
        return await self._write(saving.add_experiences, lessons, self._clock())

    # Forgetting (see `actors.store.erasing`)

    find = _question(erasing.find)

    async def tombstone(self, selector: Selector, scope: Scope) -> None:
        """From now on nothing of these is written, nor delivered to an actor."""
        await self._write(erasing.tombstone, selector, scope, self._clock())

    async def erase(self, scope: Scope) -> None:
        """Take `scope`, which has its tombstones, out for good, in many short transactions; may be done again."""
        for part in erasing.parts(scope):
            await self._write(erasing.erase, part)
        await self._write(erasing.sweep)

    tombstoned = _question(erasing.tombstoned)

    async def fold(self) -> bool:
        """Bring SQLite's log back into its file, so that nothing of what was deleted is left in it; False: it
        happens by itself later (see `actors.store.engine.fold`)."""
        return await self._database.fold()

    # What the attributor keeps

    states = _question(judgements.states)
    judgements = _question(judgements.judgements)

    async def keep_judgements(self, fresh: Sequence[Judgement], states: Mapping[str, bytes]) -> None:
        """In one transaction: add judgements and values of state."""
        await self._write(judgements.keep, fresh, states, self._clock())

    def _audited(self, head: Head | None) -> None:
        """Tell where the audit trail ends, once that is durable: whoever keeps logs elsewhere has an anchor with it."""
        if head is not None:
            self.audit_head = head
            _log.info("audit_head", sequence=head.sequence, hash=head.hash)


def _create(connection: Connection) -> Head:
    if connection.dialect.name == "postgresql":
        check(connection)
    create(connection)
    return head(connection)

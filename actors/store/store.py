"""`Store`: the one place where evolved keeps what it knows; SQLite in a file, or PostgreSQL.

It is the system's `Ledger` (what is done, what is still to be published, what failed) and the repository that actors,
gate and dashboard ask. Statements run in worker threads (`actors.store.database`). Use one `Store` from one event loop.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import structlog
from sqlalchemy import Connection

from actors.messages import Message, OutcomeChanged
from actors.store import agents, erasing, judgements, ledger, lessons, outcomes, policy, runs, waiting
from actors.store import tasks as pool
from actors.store.audit import START, Head, head
from actors.store.database import Database
from actors.store.erasing import Scope
from actors.store.saving import Saved, save
from actors.store.schema import create
from actors.system.outgoing import Outgoing

P = ParamSpec("P")
R = TypeVar("R")
Method: TypeAlias = "Callable[Concatenate[Store, P], CoroutineType[Any, Any, R]]"
_log = structlog.get_logger(__name__)


def _question(work: Callable[Concatenate[Connection, P], R]) -> "Method[P, R]":
    """A function of a connection that only reads, as a method of the store: one transaction each."""

    async def answer(store: "Store", *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.ask(work, *args, **kwargs)

    return answer


def _change(work: Callable[Concatenate[Connection, P], R]) -> "Method[P, R]":
    """The same of one that writes."""

    async def answer(store: "Store", *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.change(work, *args, **kwargs)

    return answer


def _dated(work: Callable[Concatenate[Connection, float, P], R]) -> "Method[P, R]":
    """The same of one that notes when."""

    async def answer(store: "Store", *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.change(work, store._clock(), *args, **kwargs)

    return answer


class Store(Database):
    """Ledger and repository in one database. Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str, *, clock: Callable[[], float], password_file: str = "") -> None:
        """Nothing is opened yet: see `open`. `url` and `password_file` as for `actors.store.engine.open_engine`;
        `clock` says unix seconds, for the times at which rows were written."""
        super().__init__(url, password_file)
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
        await self.change(create)
        self.audit_head = await self.ask(head)

    # The ledger (see `actors.system.outbox.Ledger`)

    processed = _question(ledger.processed)

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        saved = await self.change(ledger.commit, actor, inputs, records, outputs, self._clock())
        if saved is None:
            return None
        self._noted(saved)
        return saved.outputs

    unpublished = _question(ledger.unpublished)
    published = _change(ledger.published)
    park = _dated(ledger.park)
    revive = _dated(ledger.revive)
    delete_dead_letter = _change(ledger.delete_dead_letter)
    dead_letters = _question(ledger.dead_letters)
    prune = _change(ledger.prune)

    # Records

    async def save(self, records: Sequence[Message]) -> Sequence[OutcomeChanged]:
        """Write records outside of any actor's commit; what reports among them changed, which nobody publishes."""
        saved = await self.change(save, records, self._clock())
        self._noted(saved)
        return saved.changed

    open_exchanges = _question(runs.open_exchanges)
    exchanges = _question(runs.exchanges)
    waiting_feedback = _question(waiting.feedback_for)
    step_feedback = _question(runs.step_feedback)
    trajectory = _question(runs.trajectory)
    recent_attributed = _question(runs.recent_attributed)
    exam = _question(runs.exam)
    agents = _question(agents.agents)
    recent_closed = _question(runs.recent_closed)
    calls_beside = _question(runs.calls_beside)
    place = _question(waiting.place)
    unused = _question(runs.unused)
    still_unused = _question(runs.still_unused)
    drop_unused = _change(runs.drop_unused)
    newest_late = _question(outcomes.newest_late)
    latest = _question(outcomes.latest)
    recent_outcomes = _question(runs.recent_outcomes)
    reporting_parties = _question(runs.reporting_parties)
    closed_runs = _question(runs.closed_runs)
    lost_runs = _question(runs.lost_runs)
    reported = _question(runs.reported)
    offer = _dated(pool.offer)
    task_states = _question(pool.task_states)
    mark_tasks = _change(pool.mark)
    task_count = _question(pool.task_count)
    newest = _question(policy.newest)
    outstanding = _question(policy.outstanding)
    head = _question(policy.head)
    first_served = _question(policy.first_served)
    frozen = _question(policy.frozen)

    async def counts(self) -> dict[str, int]:
        return {**await self.ask(runs.counts), "forgotten_refused": self.forgotten_refused}

    state_get = _question(ledger.get_state)
    state_put = _change(ledger.put_state)

    # Lessons

    experiences = _question(lessons.experiences)
    replace_experiences = _change(lessons.replace)
    revisions_of = _question(lessons.revisions_of)
    revise = _dated(lessons.revise)
    add_experiences = _dated(lessons.add_experiences)
    embeddings = _question(lessons.embeddings)
    save_embeddings = _change(lessons.save_embeddings)
    prune_embeddings = _change(lessons.prune_embeddings)

    # Forgetting (see `actors.store.erasing`)

    find = _question(erasing.find)
    tombstone = _dated(erasing.tombstone)

    async def erase(self, scope: Scope) -> None:
        """Take `scope`, which has its tombstones, out for good, in many short transactions; may be done again."""
        for part in erasing.parts(scope):
            await self.change(erasing.erase, part)
        await self.change(erasing.sweep)

    tombstoned = _question(erasing.tombstoned)

    # What the attributor keeps

    states = _question(judgements.states)
    keep_judgements = _dated(judgements.keep)
    judgements = _question(judgements.judgements)

    def _noted(self, saved: Saved) -> None:
        self.forgotten_refused += saved.refused
        self.reports += saved.did
        if saved.head is not None:
            # Once that is durable: whoever keeps logs elsewhere has an anchor with it.
            self.audit_head = saved.head
            _log.info("audit_head", sequence=saved.head.sequence, hash=saved.head.hash)

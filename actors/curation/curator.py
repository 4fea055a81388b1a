"""The curator: orders the updates.

    trajectory.attributed, trajectory.outcome, policy.candidate, policy.serving, policy.directive
        -> [pool] -> batch file -> work.train

One order is out at a time; the next is drawn when the learner has answered. Pool and curriculum are rebuilt from the
store (docs/how-it-learns.md).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio.to_thread
import structlog
from anyio.lowlevel import checkpoint

from actors.curation.batch_files import KEEP_FILES, BatchFiles
from actors.curation.curriculum import Curriculum
from actors.curation.pool import POOL_GROUPS, POOL_PRODUCTION, CuratorSettings, TrainingPool
from actors.curation.waiting import ORDER_SECONDS, Heard
from actors.kinds.holdout import held_out
from actors.messages import Attributed, BatchOrder, Candidate, Directive, Message, OutcomeChanged, Serving
from actors.messages.lineage import REMEMBERED
from actors.provisional.outcome_model import STATE, learn
from actors.provisional.waiting import Provisional
from actors.store import Dropped, Guessed, Store, Used
from actors.store.agents import LEARNED, AgentView
from actors.store.outcomes import GIVEN_UP, Latest
from actors.system.actor import Actor, Output, Received, Result
from actors.system.streams import (
    POLICY_CANDIDATE,
    POLICY_DIRECTIVE,
    POLICY_SERVING,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_OUTCOME,
    WORK_TRAIN,
)

__all__ = ["Curator", "CuratorSettings"]

_log = structlog.get_logger(__name__)
_KINDS = "curator/kinds"
"""State: what `Kinds` has saved."""
_KINDS_SECONDS = 60.0
"""How often those are saved, if they have changed: a kill costs so many seconds of outcomes, and no run."""
_GUESS_SECONDS = 10.0
"""How often the outcome model is asked what it can say: what it rests on comes minutes after the runs."""
_GUESSED = 64
"""Unreported runs that it is asked about at a look: their bodies are read from the store."""
_UNREPORTED = 16_384
"""Production runs whose outcome is waited for over a restart: at ten runs a minute a day of them."""
_PAGE = 256
"""Runs that a start reads, or outcomes that it learns from, between two breaths of the event loop."""
_AGENTS_SECONDS = 30.0
"""How often it is asked what became of each agent's runs: the answer reads an index entry for each of them."""
_WEEK = 7 * 86_400.0
"""Seconds: of so long, so that an agent that has changed is not judged by old runs."""
_HISTORY = 8192
"""Outcomes of sandbox and production each from which a start learns the clusters again: eight of each that is
remembered."""
ORDER_ATTEMPTS = 5
"""Times that an order is sent: a learner that is away for most of an hour is waited for."""
_SERVINGS = 200
"""Swaps looked through at a start for what each engine serves."""


class Curator(Actor):
    """Actor: attributed trajectories in, orders to train out."""

    name = "curator"
    inputs = (TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME, POLICY_CANDIDATE, POLICY_SERVING, POLICY_DIRECTIVE)
    batch = 64
    """Records taken at a time: one transaction each."""
    tick_seconds = 1.0
    """How often deadlines are looked at; the shortest is ten seconds."""
    renews = True

    def __init__(
        self,
        settings: CuratorSettings,
        *,
        store: Store,
        batches: Path,
        clock: Callable[[], float],
        curriculum: Curriculum | None = None,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        """
        Args:
            batches: directory of the batch files; the learner must be able to read it.
            curriculum: told of outcomes and asked for the order of clusters, with the kinds that tell what was to be
                expected of a run; share it with the rollout.
            exam: whether a production trajectory, by id, is the gate's.
        """
        self.settings, self._store, self._files, self._clock = settings, store, BatchFiles(batches), clock
        self.curriculum = curriculum or settings.curriculum()
        """What it knows of the clusters."""
        self.kinds = self.curriculum.kinds
        self.provisional = Provisional()
        """What happened after runs, and how likely it makes their success."""
        self.pool = TrainingPool(settings, self.curriculum, exam=exam)
        """What waits, and what was dropped by reason."""
        self._kinds_saved = self._guessed = self._asked = float("-inf")
        self._rebuilt: dict[str, int] = {}
        """Runs whose outcome the curriculum has from the books, with the revision that it has."""
        self.heard = Heard(clock())
        self.agents: list[AgentView] = []
        """What became of each agent's runs of a week, as of the last time that it was asked."""
        self.effects: Counter[str] = Counter()
        """Runs since this object was made: `learned`, or why they taught nothing."""
        self.outstanding: BatchOrder | None = None
        """The order that no version has answered yet."""
        self._sent_at, self._attempts = 0.0, 0
        self.started = False
        """Whether the books have been read."""

    @property
    def figures(self) -> Mapping[str, int]:
        """What waits, and how many clusters are known."""
        return {
            "guesses": self.pool.guesses,
            "waiting": self.pool.waiting,
            "waiting_groups": self.pool.whole_groups,
            "clusters": len(self.curriculum.gains),
        }

    async def start(self) -> None:
        """Rebuild pool and outstanding order from the store; remove files that nobody will ask for."""
        now, store = self._clock(), self._store
        self.kinds.load(await store.state_get(_KINDS))
        await self._learn_clusters()
        self.pool.clear()
        self.provisional = Provisional()
        self.provisional.model.load(await store.state_get(STATE))
        await self._learn_policy()
        self.outstanding = await store.outstanding()
        self._sent_at, self._attempts = now, 1
        await self._fill(now)
        await self._ask_of_agents(now)
        self.started = True
        orders = await store.newest(BatchOrder, KEEP_FILES + 1)
        await anyio.to_thread.run_sync(self._files.clean, {order.id for order in orders})
        _log.info(
            "curator_started",
            waiting=self.pool.waiting,
            head=self.pool.freshness.head,
            outstanding=self.outstanding.id if self.outstanding else None,
            frozen=self.heard.frozen,
        )

    async def _learn_clusters(self) -> None:
        """Tell the curriculum again what it knew, from the outcomes in the store."""
        rows = [
            (source, row)
            for source in ("sandbox", "production")
            for row in reversed(await self._store.recent_outcomes(source=source, limit=_HISTORY))
            if row.outcome is not None and not (source == "production" and self.pool.held_out(row.id))
        ]
        self._rebuilt = {row.id: row.revision for _, row in rows}
        self.curriculum.clear()
        for number, (source, row) in enumerate(sorted(rows, key=lambda one: one[1].ended)):
            if not number % _PAGE:
                await checkpoint()
            cluster = self.curriculum.kind(row.goal)
            self.curriculum.observe(source, cluster, row.outcome or 0.0)
            self.curriculum.touch(cluster)

    async def _learn_policy(self) -> None:
        """Where the learner stands, what serves, and whether it may learn, as the books say."""
        self.heard = Heard(self.heard.since)
        for candidate in sorted(await self._store.newest(Candidate, REMEMBERED), key=lambda one: one.created):
            self._trained(candidate)
        for directive in reversed(await self._store.newest(Directive, REMEMBERED, kinds=("freeze", "thaw"))):
            self.heard.directive(directive)
        head = await self._store.head()
        if head is not None:
            self.pool.freshness.trained(head)
        for serving in reversed(await self._store.newest(Serving, _SERVINGS)):
            self.pool.freshness.serves(serving)

    async def _fill(self, now: float) -> None:
        """The pool, with what is neither used nor dropped, a page at a time."""
        room = POOL_GROUPS * self.settings.group_size + POOL_PRODUCTION
        # What lies further back than the pool has room for would wait for ever, and nobody would say so.
        self.effects["pool full"] += await self._store.drop_unused(room, "pool full")
        self.effects["no outcome"] += await self._store.drop_unused(_UNREPORTED, "no outcome", reported=False)
        after = (-1.0, "")
        while page := await self._store.unused(after, _PAGE):
            self._put(page, now)
            await checkpoint()
            after = (page[-1].trajectory.ended, page[-1].id)

    def _put(self, items: Sequence[Attributed], now: float) -> None:
        for item in items:
            self.pool.add(item, now)
            self.provisional.saw(item.trajectory, exam=self._kept(item))

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Fill the pool; order if it is time."""
        records: list[Message] = []
        latest = await self._store.latest(self.name, [received.message for received in batch])
        for received in batch:
            match received.message:
                case Attributed(id=key):
                    item = latest.runs[key]
                    self.provisional.saw(item.trajectory, exam=self._kept(item))
                    records += self._take(item, latest)
                case OutcomeChanged(id=key) if key in latest.runs:
                    records += self._take(latest.runs[key], latest)
                case Candidate() as candidate:
                    records.append(candidate)
                    self._answered(candidate)
                case Serving() as serving:
                    self.pool.freshness.serves(serving)
                case Directive(kind=kind) as directive:
                    records.append(directive)
                    self.heard.directive(directive)
                    if kind == "drift":
                        self.kinds.drifted(directive.details)
                        await self._save_kinds()
                case _:
                    pass
        return await self._order(records)

    async def tick(self) -> Result:
        """Settle groups that stay incomplete; see to an order that nobody answers."""
        now = self._clock()
        await self._ask_of_agents(now)
        if now - self._kinds_saved >= _KINDS_SECONDS:
            await self._save_kinds()
        if self.outstanding is not None and now - self._sent_at >= ORDER_SECONDS:
            return await self._overdue(self.outstanding)
        await self._guess(now)
        return await self._order([])

    def _take(self, item: Attributed, latest: Latest) -> list[Message]:
        """Into the pool; and once a revision to curriculum and estimates, but for what is the gate's."""
        run = item.trajectory
        # After a restart the pool has, and may have ordered, what the stream has yet to deliver. And what was in an
        # order is in no other one, whatever is reported of it later.
        if item.id not in latest.settled:
            latest.settled.add(item.id)  # a batch may tell of it twice
            self.pool.add(item, self._clock())
        if run.source == "probe" or self._kept(item) or not latest.news(run):
            return []
        self.curriculum.saw(run, known=self._rebuilt.get(item.id, -1) >= run.outcome_revision)
        if run.source == "production":
            self.kinds.tell(run)
            self.provisional.told(run)
        return [Used(id=item.id, actor=self.name, revision=run.outcome_revision)]

    def _kept(self, item: Attributed) -> bool:
        """Whether it is the gate's."""
        return item.trajectory.source == "production" and self.pool.held_out(item.id)

    async def _save_kinds(self) -> None:
        self._kinds_saved = self._clock()
        self.kinds.erase(await self._store.tombstoned(self.kinds.runs))
        self.provisional.erase(await self._store.tombstoned(self.provisional.runs))
        for key, part in ((_KINDS, self.kinds), (STATE, self.provisional.model)):
            data = part.to_save()
            if data is not None:
                await self._store.state_put(key, data)

    async def _ask_of_agents(self, now: float) -> None:
        if now - self._asked >= _AGENTS_SECONDS:
            self._asked = now
            self.agents = await self._store.agents(now - _WEEK)

    async def _guess(self, now: float) -> None:
        """Let the outcome model learn, and speak of runs that nobody has reported."""
        if now - self._guessed < _GUESS_SECONDS:
            return
        self._guessed = now
        self.provisional.ripen(now)
        wanted = self.provisional.model.to_learn()
        if wanted is not None:
            self.provisional.model.adopt(await anyio.to_thread.run_sync(learn, *wanted))
        if wanted is not None or not self.settings.provisional:
            # What an older model made of them is not what the newest does; nor is anything, where it is not wanted.
            self.pool.drop_guesses()
            self.provisional.give_again()
        if not self.settings.provisional:
            return
        due = {chance.id: chance for chance in self.provisional.due(now, _GUESSED)}
        for item in await self._store.still_unused(list(due)):
            self.pool.guess(item, due[item.id])

    def _trained(self, candidate: Candidate) -> None:
        self.pool.freshness.trained(candidate)
        self.kinds.estimates.trained(candidate)
        self.heard.answer(candidate)

    def _answered(self, candidate: Candidate) -> None:
        before, order = self.pool.freshness.head, self.outstanding
        self._trained(candidate)
        if candidate.answer == "went_back":
            _log.info("learner_went_back", version=candidate.version, before=before)
        if order is not None and order.id in candidate.batch_ids:
            self.outstanding = None
            self.effects.update(candidate.no_gradient.values())
            rest = len(order.trajectories) - len(candidate.no_gradient)
            self.effects[LEARNED if candidate.answer == "trained" else candidate.answer] += rest
            seconds = round(self._clock() - self._sent_at, 3)
            _log.info("order_answered", order=order.id, version=candidate.version, seconds=seconds)

    async def _order(self, records: list[Message]) -> Result:
        outputs: list[Output] = []
        may = self.outstanding is None and not self.heard.frozen
        if may and (selected := self.pool.select(self._clock())):
            order = await anyio.to_thread.run_sync(self._files.write, selected, self._clock())
            self.outstanding, self._sent_at, self._attempts = order, self._clock(), 1
            runs = [item.attributed.trajectory for item in selected]
            records += [Guessed(id=run.id, outcome=run.outcome or 0.0) for run in runs if run.provisional]
            records.append(order)
            outputs.append(Output(WORK_TRAIN, order))
        drops = self.pool.take_drops()
        self.effects.update(one.reason for one in drops)
        return Result([*records, *drops], outputs)

    async def _overdue(self, order: BatchOrder) -> Result:
        """Send the same order again, or give it up. The learner knows an order by its id, so twice is once."""
        there = await anyio.to_thread.run_sync(Path(order.path).exists)
        if there and self._attempts < ORDER_ATTEMPTS:
            self._attempts, self._sent_at = self._attempts + 1, self._clock()
            _log.warning("order_repeated", order=order.id, attempt=self._attempts)
            return Result((), [Output(WORK_TRAIN, order)])
        self.outstanding = None
        self.effects[GIVEN_UP] += len(order.trajectories)
        _log.error("order_given_up", order=order.id, attempts=self._attempts, file=there)
        # Whoever comes back may answer it yet; until then nothing was learned from it.
        return await self._order([Dropped(id=key, reason=GIVEN_UP) for key in order.trajectories])

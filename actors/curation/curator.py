"""The curator: orders the updates.

    trajectory.attributed, trajectory.outcome, policy.candidate, policy.serving, policy.directive
        -> [pool] -> batch file -> work.train

One order is out at a time; the next is drawn when the learner has answered. The file lies in the state directory under
the order's id, which follows from its members. Pool and curriculum are rebuilt from the store (docs/how-it-learns.md).
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from pathlib import Path

import anyio.to_thread
import structlog
from anyio.lowlevel import checkpoint

from actors.curation.curriculum import Curriculum
from actors.curation.pool import (
    POOL_GROUPS,
    POOL_PRODUCTION,
    UNREPORTED,
    CuratorSettings,
    Guess,
    Selected,
    TrainingPool,
)
from actors.curation.waiting import Heard
from actors.kinds.holdout import held_out
from actors.kinds.kinds import Kinds
from actors.messages import (
    Attributed,
    BatchOrder,
    Candidate,
    Directive,
    Message,
    OutcomeChanged,
    Serving,
    derived_id,
    encode_batch,
)
from actors.messages.files import write_whole
from actors.messages.lineage import REMEMBERED
from actors.provisional.outcome_model import STATE, learn
from actors.provisional.waiting import Provisional
from actors.store import Dropped, Guessed, Store, Used
from actors.store.agents import LEARNED, AgentView
from actors.store.outcomes import GIVEN_UP, Latest
from actors.system.actor import Actor, Output, Received, Result
from actors.system.errors import DependencyUnavailable
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
_GIVEN_UP = "curator/given_up"
"""Id of the last order that was given up."""
_SUFFIX = ".batch"
_GUESS_SECONDS = 10.0
"""How often the outcome model is asked what it can say: what it rests on comes minutes after the runs."""
_PAGE = 256
"""Runs that wait for their outcome, read at a time."""
_AGENTS_SECONDS = 30.0
"""How often it is asked what became of each agent's runs: the answer reads an index entry for each of them."""
_WEEK = 7 * 86_400.0
"""Seconds: of so long, so that an agent that has changed is not judged by old runs."""
_KINDS = "curator/kinds"
"""What `Kinds` has saved."""
_GUESSED = 64
"""Unreported runs that the outcome model is asked about at a look: their bodies are read from the store."""
_LEVELS = "curator/levels"
"""What the curriculum's `Levels` have saved."""
_KINDS_SECONDS = 60.0
"""How often it is saved, if it has changed: a kill costs the estimates that many seconds of outcomes, and no run."""
_AT_ONCE = 256
"""Outcomes that a start reads between two breaths of the event loop."""
_BATCH = 64
"""Records taken at a time: one transaction each."""
_TICK_SECONDS = 1.0
"""How often deadlines are looked at; the shortest is ten seconds."""
_HISTORY = 8192
"""Outcomes of sandbox and production each from which a start learns the clusters again: eight of each that is
remembered."""
ORDER_SECONDS = 600.0
"""Without the version that an order asked for, it is sent again."""
ORDER_ATTEMPTS = 5
"""Times that an order is sent: a learner that is away for most of an hour is waited for."""
KEEP_FILES = 64
"""Batch files kept after use, newest first: for whoever looks at what an update was made of."""
_SERVINGS = 200
"""Swaps looked through at a start for what each engine serves."""


class Curator(Actor):
    """Actor: attributed trajectories in, orders to train out."""

    name = "curator"
    inputs = (TRAJECTORY_ATTRIBUTED, TRAJECTORY_OUTCOME, POLICY_CANDIDATE, POLICY_SERVING, POLICY_DIRECTIVE)
    batch = _BATCH
    tick_seconds = _TICK_SECONDS
    renews = True

    def __init__(
        self,
        settings: CuratorSettings,
        *,
        store: Store,
        batches: Path,
        clock: Callable[[], float],
        curriculum: Curriculum | None = None,
        kinds: Kinds | None = None,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        """
        Args:
            exam: whether a production trajectory, by id, is the gate's.
            store: pool and outstanding order are rebuilt from it.
            batches: directory of the batch files; the learner must be able to read it.
            clock: unix seconds.
            curriculum: told of outcomes and asked for the order of clusters; share it with the rollout.
            kinds: told of production's outcomes and asked what was to be expected of a run.
        """
        self._settings, self._store, self._batches, self._clock = settings, store, batches, clock
        self._curriculum = curriculum or settings.curriculum()
        self.kinds = kinds or Kinds()
        self._curriculum.levels.meanings = self.kinds.meanings
        self.provisional = Provisional()
        """What happened after runs, and how likely it makes their success."""
        self._exam = exam
        self._pool = TrainingPool(settings, self._curriculum, kinds=self.kinds, exam=exam)
        self._kinds_saved = float("-inf")
        self._guessed = float("-inf")
        self._rebuilt: dict[str, int] = {}
        """Runs whose outcome the curriculum has from the books, with the revision that it has."""
        self.heard = Heard(clock())
        self.agents: list[AgentView] = []
        """What became of each agent's runs of a week, as of the last time that it was asked."""
        self._asked = float("-inf")
        self.effects: Counter[str] = Counter()
        """Runs since this object was made: `learned`, or why they taught nothing."""
        self._outstanding: BatchOrder | None = None
        self._sent_at = 0.0
        self._attempts = 0
        self._frozen = False
        self.started = False
        """Whether the books have been read."""
        self.counts: Counter[str] = Counter()
        """Since this object was made: orders, ordered_sandbox, ordered_production; drawn, with those of groups that had
        equal outcomes, and drawn_elsewhere, not of the batch's leading cluster; order_repeated, order_given_up,
        given_up_trajectories, skipped_trajectories; told_late, corrected_late (first words and corrections that came
        after their runs had closed)."""

    @property
    def settings(self) -> CuratorSettings:
        return self._settings

    @property
    def frozen(self) -> bool:
        """Whether a freeze stops ordering."""
        return self._frozen

    @property
    def pool(self) -> TrainingPool:
        """What waits, and what was dropped by reason."""
        return self._pool

    @property
    def curriculum(self) -> Curriculum:
        """What it knows of the clusters."""
        return self._curriculum

    @property
    def figures(self) -> Mapping[str, int]:
        """Everything that is counted, under names of letters and underscores, and what waits."""
        pool, curriculum = self._pool, self._curriculum
        # A batch that is short of replay is no reason of the pool's.
        short = pool.counts["replay_missing"]
        reasons = {
            f"pool_{name.replace(' ', '_')}": number for name, number in pool.counts.items() if name != "replay_missing"
        }
        planned = {f"planned_{name}": number for name, number in curriculum.counts.items()}
        return {
            **self.counts,
            **reasons,
            **planned,
            **self.kinds.figures,
            "guesses": pool.guesses,
            "replay_missing": short,
            "waiting": pool.waiting,
            "waiting_groups": pool.whole_groups,
            "clusters": len(curriculum.gains),
            "clusters_known": len(curriculum.levels),
            "clusters_forgotten": curriculum.levels.forgotten,
            "clusters_sandbox": len(curriculum.playable),
        }

    @property
    def outstanding(self) -> BatchOrder | None:
        """The order that no version has answered yet."""
        return self._outstanding

    async def start(self) -> None:
        """Rebuild pool and outstanding order from the store; remove files that nobody will ask for."""
        now = self._clock()
        self.heard = Heard(self.heard.since)
        self._curriculum.levels.load(await self._store.state_get(_LEVELS))
        await self._learn_clusters()
        old, self._pool = self._pool, TrainingPool(self._settings, self._curriculum, kinds=self.kinds, exam=self._exam)
        self._pool.counts = old.counts
        self._frozen = await self._store.frozen()
        self.kinds.load(await self._store.state_get(_KINDS))
        self.provisional = Provisional()
        self.provisional.model.load(await self._store.state_get(STATE))
        await self._learn_versions()
        outstanding = await self._store.outstanding()
        given_up = await self._store.state_get(_GIVEN_UP)
        same = outstanding is not None and given_up is not None and outstanding.id == given_up.decode()
        self._outstanding = None if same else outstanding
        self._sent_at, self._attempts = now, 1
        room = POOL_GROUPS * self._settings.group_size + POOL_PRODUCTION
        # What lies further back than the pool has room for would wait for ever, and nobody would say so.
        self._pool.counts["pool full"] += await self._store.drop_unused(room, "pool full")
        self._pool.counts["no outcome"] += await self._store.drop_unused(UNREPORTED, "no outcome", reported=False)
        for item in await self._store.unused(room):
            self._pool.add(item, now)
            self.provisional.saw(item.trajectory, exam=self._kept(item))
        await self._wait_again(now)
        await self._ask_of_agents(now)
        self.started = True
        orders = await self._store.batches(KEEP_FILES + 1)
        await anyio.to_thread.run_sync(self._clean, frozenset(order.id for order in orders))
        _log.info(
            "curator_started",
            waiting=self._pool.waiting,
            head=self._pool.freshness.head,
            outstanding=self._outstanding.id if self._outstanding else None,
            frozen=self._frozen,
        )

    async def _wait_again(self, now: float) -> None:
        """Take up the runs that nobody has reported yet: a page at a time, for their bodies are not kept."""
        after = (-1.0, "")
        while page := await self._store.unreported(after, _PAGE):
            for item in page:
                self._pool.add(item, now)
                self.provisional.saw(item.trajectory, exam=self._kept(item))
            await checkpoint()
            after = (page[-1].trajectory.ended, page[-1].id)

    async def _ask_of_agents(self, now: float) -> None:
        if now - self._asked >= _AGENTS_SECONDS:
            self._asked = now
            self.agents = await self._store.agents(now - _WEEK)

    async def _learn_versions(self) -> None:
        """Where the learner stands, what serves, and whether it may learn, as the books say."""
        freshness, head = self._pool.freshness, await self._store.head()
        for candidate in sorted(await self._store.candidates(REMEMBERED), key=lambda one: one.created):
            freshness.trained(candidate)
            self.kinds.estimates.trained(candidate)
            self.heard.answer(candidate)
        for directive in reversed(await self._store.directives(REMEMBERED)):
            self.heard.directive(directive)
        if head is not None:
            freshness.trained(head)
        for serving in reversed(await self._store.servings(limit=_SERVINGS)):
            freshness.serves(serving)

    async def _learn_clusters(self) -> None:
        """Tell the curriculum again what it knew, from the outcomes in the store."""
        sandbox = await self._store.recent_outcomes(source="sandbox", limit=_HISTORY)
        production = await self._store.recent_outcomes(source="production", limit=_HISTORY)
        self._rebuilt = {row.id: row.revision for row in (*sandbox, *production) if row.outcome is not None}
        told: list[list[tuple[float, str, str, float]]] = [[], []]
        for source, rows, into in (("sandbox", sandbox, told[0]), ("production", production, told[1])):
            for number, row in enumerate(reversed(rows)):
                if not number % _AT_ONCE:
                    await checkpoint()
                if row.outcome is not None and not (source == "production" and self._pool.held_out(row.id)):
                    into.append((row.ended, source, self._curriculum.kind(row.goal), row.outcome))
        self._curriculum.rebuild(row[1:] for row in merge(*told, key=lambda row: row[0]))

    def _observe(self, item: Attributed, latest: Latest) -> list[Message]:
        """Tell curriculum and estimates, once a revision; what is the gate's tells them nothing."""
        run = item.trajectory
        if run.source == "probe" or self._kept(item) or not latest.news(run):
            return []
        self._curriculum.saw(run, known=self._rebuilt.get(item.id, -1) >= run.outcome_revision)
        if run.source == "production":
            self.kinds.tell(run)
            self.provisional.told(run)
        return [Used(id=item.id, actor=self.name, revision=run.outcome_revision)]

    def _kept(self, item: Attributed) -> bool:
        """Whether it is the gate's."""
        return item.trajectory.source == "production" and self._pool.held_out(item.id)

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Fill the pool; order if it is time."""
        records: list[Message] = []
        latest = await self._store.latest(self.name, [received.message for received in batch])
        # After a restart the pool has, and may have ordered, what the stream has yet to deliver. And what was in an
        # order is in no other one, whatever is reported of it later.
        settled = await self._store.settled(list(latest.runs))
        # Kinds answer at once: what goals mean is asked before they are told of them.
        await self.kinds.meanings.look(item.trajectory.goal for item in latest.runs.values())
        for received in batch:
            match received.message:
                case Attributed(id=key):
                    item = latest.runs[key]
                    self.provisional.saw(item.trajectory, exam=self._kept(item))
                    records += self._take(item, latest, settled)
                case OutcomeChanged(id=key) as changed if key in latest.runs:
                    self.counts["corrected_late" if changed.revision else "told_late"] += 1
                    records += self._take(latest.runs[key], latest, settled)
                case Candidate() as candidate:
                    records.append(candidate)
                    self._answered(candidate)
                case Serving() as serving:
                    self._pool.freshness.serves(serving)
                case Directive() as directive:
                    records.append(directive)
                    self.heard.directive(directive)
                    if directive.kind == "drift":
                        self.kinds.drifted(directive.details)
                        await self._save_kinds()
                    if directive.kind in ("freeze", "thaw"):
                        self._frozen = directive.kind == "freeze"
                case _:
                    pass
        return await self._order(records)

    async def tick(self) -> Result:
        """Settle groups that stay incomplete; see to an order that nobody answers."""
        await self._ask_of_agents(self._clock())
        if self._clock() - self._kinds_saved >= _KINDS_SECONDS:
            await self._save_kinds()
        if self._outstanding is not None and self._clock() - self._sent_at >= ORDER_SECONDS:
            return await self._overdue(self._outstanding)
        await self._guess(self._clock())
        return await self._order([])

    async def _save_kinds(self) -> None:
        self._kinds_saved = self._clock()
        self.kinds.erase(await self._store.tombstoned(self.kinds.runs))
        data = self.kinds.to_save()
        if data is not None:
            await self._store.state_put(_KINDS, data)
        data = self._curriculum.levels.to_save()
        if data is not None:
            await self._store.state_put(_LEVELS, data)
        self.provisional.erase(await self._store.tombstoned(self.provisional.runs))
        data = self.provisional.model.to_save()
        if data is not None:
            await self._store.state_put(STATE, data)

    def _take(self, item: Attributed, latest: Latest, settled: set[str]) -> list[Message]:
        """Into the pool and the estimates."""
        if item.id not in settled:
            settled.add(item.id)  # a batch may tell of it twice
            self._pool.add(item, self._clock())
        return self._observe(item, latest)

    async def _guess(self, now: float) -> None:
        """Let the outcome model learn, and speak of runs that nobody has reported."""
        if now - self._guessed < _GUESS_SECONDS:
            return
        self._guessed = now
        self.provisional.ripen(now)
        wanted = self.provisional.model.to_learn()
        if wanted is not None:
            self.provisional.model.adopt(await anyio.to_thread.run_sync(learn, *wanted))
        if wanted is not None or not self._settings.provisional:
            # What an older model made of them is not what the newest does; nor is anything, where it is not wanted.
            self._pool.drop_guesses()
            self.provisional.give_again()
        if not self._settings.provisional:
            return
        for chance in self.provisional.due(now, _GUESSED):
            item = await self._store.trajectory(chance.id)
            if isinstance(item, Attributed):
                self._pool.guess(Guess(item, chance.chance, chance.weight))

    def _answered(self, candidate: Candidate) -> None:
        before = self._pool.freshness.head
        self._pool.freshness.trained(candidate)
        self.kinds.estimates.trained(candidate)
        if candidate.answer == "went_back":
            self.counts["went_back"] += 1
            _log.info("learner_went_back", version=candidate.version, before=before)
        order = self._outstanding
        self.heard.answer(candidate)
        if order is not None and order.id in candidate.batch_ids:
            self._outstanding = None
            self.effects.update(candidate.no_gradient.values())
            rest = len(order.trajectories) - len(candidate.no_gradient)
            self.effects[LEARNED if candidate.answer == "trained" else candidate.answer] += rest
            self.counts["no_gradient_trajectories"] += len(candidate.no_gradient)
            if candidate.answer != "trained":
                self.counts["skipped_trajectories"] += len(order.trajectories)
            seconds = round(self._clock() - self._sent_at, 3)
            _log.info("order_answered", order=order.id, version=candidate.version, seconds=seconds)

    async def _order(self, records: list[Message]) -> Result:
        outputs: list[Output] = []
        if self._outstanding is None and not self._frozen:
            selected = self._pool.select(self._clock())
            if selected is not None:
                order = await self._write(selected)
                self._outstanding, self._sent_at, self._attempts = order, self._clock(), 1
                records += [
                    Guessed(id=item.attributed.id, outcome=item.attributed.trajectory.outcome or 0.0)
                    for item in selected.items
                    if item.attributed.trajectory.provisional
                ]
                records.append(order)
                outputs.append(Output(WORK_TRAIN, order))
                self.counts["orders"] += 1
                self.counts["ordered_production"] += order.production
                self.counts["ordered_sandbox"] += len(order.trajectories) - order.production
                self.counts["drawn"] += selected.drawn
                self.counts["drawn_elsewhere"] += selected.elsewhere
        drops = self._pool.take_drops()
        self.effects.update(one.reason for one in drops)
        return Result([*records, *drops], outputs)

    async def _write(self, selected: Selected) -> BatchOrder:
        """
        Raises:
            DependencyUnavailable: no room, or no right to write; no record is to blame, and none may be parked for it.
        """
        members = tuple(item.attributed.id for item in selected.items)
        order_id = derived_id("batch", *sorted(members))
        data = encode_batch(selected.items)
        path = self._batches / f"{order_id}{_SUFFIX}"
        try:
            await anyio.to_thread.run_sync(_write_order, path, data)
        except OSError as error:
            raise DependencyUnavailable(
                f"no batch of {len(data)} bytes could be written: {error}; make room where state_dir is"
            ) from error
        await anyio.to_thread.run_sync(self._clean)
        _log.info(
            "batch_written", order=order_id, trajectories=len(members), groups=selected.groups,
            production=selected.production, elsewhere=selected.elsewhere, drawn=selected.drawn,
            head=self._pool.freshness.head, oldest=selected.min_version,
        )  # fmt: skip
        return BatchOrder(
            id=order_id,
            path=str(path.absolute()),
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
            trajectories=members,
            groups=selected.groups,
            production=selected.production,
            min_version=selected.min_version,
            created=self._clock(),
        )

    async def _overdue(self, order: BatchOrder) -> Result:
        """Send the same order again, or give it up. The learner knows an order by its id, so twice is once."""
        there = await anyio.to_thread.run_sync(Path(order.path).exists)
        if there and self._attempts < ORDER_ATTEMPTS:
            self._attempts, self._sent_at = self._attempts + 1, self._clock()
            self.counts["order_repeated"] += 1
            _log.warning("order_repeated", order=order.id, attempt=self._attempts)
            return Result((), [Output(WORK_TRAIN, order)])
        await self._store.state_put(_GIVEN_UP, order.id.encode())
        self._outstanding = None
        self.counts["order_given_up"] += 1
        self.counts["given_up_trajectories"] += len(order.trajectories)
        self.effects[GIVEN_UP] += len(order.trajectories)
        _log.error("order_given_up", order=order.id, attempts=self._attempts, file=there)
        # Whoever comes back may answer it yet; until then nothing was learned from it.
        return await self._order([Dropped(id=key, reason=GIVEN_UP) for key in order.trajectories])

    def _clean(self, orders: frozenset[str] | None = None) -> None:
        """Remove what a crash left half written, and all but the newest files.

        Args:
            orders: the newest that there are: a file of none of them was not committed, or holds what was forgotten.
        """
        if not self._batches.is_dir():
            return
        for path in self._batches.glob(f".*{_SUFFIX}.part"):
            path.unlink(missing_ok=True)
        keep = Path(self._outstanding.path).name if self._outstanding else ""
        files = sorted(self._batches.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for number, path in enumerate(files):
            unknown = orders is not None and path.name.removesuffix(_SUFFIX) not in orders
            if path.name != keep and (unknown or number >= KEEP_FILES):
                path.unlink(missing_ok=True)


def _write_order(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # What agents and users said stands in there: for our own eyes alone.
    write_whole(path, data, mode=0o600, sync="directory")

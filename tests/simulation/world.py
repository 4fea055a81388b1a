"""One cell: the real actors at their defaults on virtual time, what they work with, and what is measured meanwhile."""

import contextlib
import random
import sqlite3
import tempfile
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
from sqlalchemy import Connection, func, select

from actors.curation.waiting import Learning
from actors.messages import MANIFEST, BatchOrder, Candidate, Directive, Message, Serving, Verdict, derived_id
from actors.messages.signing import sign
from actors.store import Joined
from actors.store.tables import Runs, Uses
from actors.system.streams import (
    POLICY_CANDIDATE,
    POLICY_DIRECTIVE,
    TRAFFIC_EXCHANGE,
    TRAFFIC_FEEDBACK,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_CLOSED,
    TRAJECTORY_OUTCOME,
    WORK_TRAIN,
)
from tests.simulation.bus import GATHER, GRID, Loop, gathered
from tests.simulation.faults import FULL, DaemonDied, Faults, SimulatedStore, full_for_files
from tests.simulation.invariants import STANDS, Broken, Watcher
from tests.simulation.learner import BACK_SECONDS, STEPS, TRAIN_SECONDS, SimulatedLearner
from tests.simulation.parts import SHADOW, Parts
from tests.simulation.plan import PROMOTIONS, SAMPLED, Cell
from tests.simulation.policies import SKILL, WELL, Policies, SimulatedEngine, SimulatedSwaps
from tests.simulation.stage import Clock, in_one_thread, memory, silence
from tests.simulation.traffic import IDLE, Run, Traffic, arrivals, closed, exchanges, report
from tests.support.keys import key_pair

_EPOCH = 1_800_000_000.0
_THAW = 3600.0
"""Seconds after which somebody has looked at a freeze and lets learning go on."""
_SETTLED = 32
"""Reported runs that a version must have, on no trial and not rolled back, to have stuck: those of a full verdict."""
_SILENT = 16
"""Closed runs that nobody reports on are handed on together where they come closed: they are most of the work."""
_AFTER_HOURS = 3.5
"""After the planted fall at the least: what is over sooner might be an outage."""
_LOOK = 64
"""Runs between two looks at what learning waits for."""
_PATIENCE = 3.0
"""Times the cell's own patience, after which it stands still even if evidence comes."""
_WELL, _HEARD = 0.7, 32
"""Success, and reported runs of each agent, before one of them falls."""
_OUTAGE, _BETWEEN = 300.0, 6 * 3600.0
"""Seconds that an engine is down for, and on average between two such times."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    seed: int
    scenario: str
    runs: int
    days: float
    reported: int
    effect: float | None
    first_promotion: tuple[int, float] | None
    """(runs, hours) until a version served first; on trial, where there are trials."""
    settled: int
    ratio: float
    """Runs to the first promotion, in bounds; without one all runs."""
    counts: dict[str, int]
    """Of orders, verdicts by decision, swaps, directives by kind."""
    found: dict[str, int]
    """What the sentinel said, as "kind cause"."""
    planted: bool
    """Whether a fall, or a regression of one agent, was planted: some version stayed."""
    undone: int | None
    """Runs from the planted fall to its rollback."""
    told: int | None
    """Runs from the planted regression of one agent until it was told, or undone."""
    faults: dict[str, int]
    skill: float
    stuck: str
    """Why it stands still; empty if it does not."""
    says: str
    broken: tuple[Broken, ...]
    digest: str
    seconds: float


class World:
    def __init__(self, cell: Cell, seed: int, *, state: Path, parts: type[Parts] | None = None) -> None:
        self.cell, self.seed, self._state = cell, seed, state
        self._learning: Learning | None = None
        """What status said when the last run had begun."""
        name = f"{seed}-{cell.name}"
        self.clock = Clock(_EPOCH)
        self._rng, self._routes = random.Random(name), random.Random(f"routes-{name}")
        self._outages = random.Random(f"outages-{name}")
        skill = WELL if cell.scenario == "fall" else SKILL
        self.policies = Policies(cell.agents, np.random.default_rng([seed, *cell.name.encode()]), skill)
        self.faults = Faults(random.Random(f"faults-{name}"), on=cell.faults)
        self.serving = {
            name: SimulatedEngine(
                name, self.policies, self.clock, self.faults, lambda engine, what: self.watcher.swapping(engine, what)
            )
            for name in (f"serving-{number}" for number in range(cell.engines))
        }
        # It has no users: that it is out while another is swapped is nobody's loss.
        self.shadow = SimulatedEngine(SHADOW, self.policies, self.clock, self.faults, lambda engine, what: None)
        self.learner = SimulatedLearner(
            self.policies, step=STEPS[cell.scenario], versions=state / "versions", clock=self.clock
        )
        self.key, keys = key_pair(state / "keys")
        self.store = SimulatedStore(f"sqlite:///{state / 'store.db'}", clock=self.clock, faults=self.faults)
        first = sha256((state / "versions" / "v000000" / MANIFEST).read_bytes()).hexdigest()
        self.watcher = Watcher(keys, self._now, first)
        swaps = SimulatedSwaps(*self.serving.values(), self.shadow, dies=self._dies, done=self.watcher.swapped)
        self.parts = (parts or Parts)(self, state, swaps, keys)
        self.loop = Loop(self)
        self.traffic = Traffic(cell, self.policies, self._rng, name=name)
        self._sampled = 1.0 if cell.feedback >= 0.2 else SAMPLED
        self._arrivals = arrivals(cell, self._rng, self.clock.now)
        self._busy = 0.0
        self._silent: list[Run] = []
        self._sent: list[str] = []
        self._said: dict[str, float] = {}
        self.runs = self._last = self._thaws = self._last_order = 0
        self._stands = False
        self._evidence: tuple[str, int] = ("", 0)
        """What learning waits for, and how much of it there is."""
        self._grew = 0
        """Runs until that was last another."""
        self._reported: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self._served: set[int] = set()
        self._settling: dict[int, int] = {}
        self._settled: set[int] = set()
        self._first: tuple[int, float] | None = None
        self._planted: tuple[int, int] | None = None
        """The version that was planted to fail, and the runs until then."""
        self._undone: int | None = None
        self._told: int | None = None
        self._full_at = self._outages.randint(20, max(20, cell.limit // 2)) if cell.faults else -1

    async def play(self) -> None:
        """Until enough promotions stuck, or the bound; then until all that is on its way has come."""
        await self.store.open()
        try:
            await self.loop.start()
            self._next()
            if self.cell.faults:
                self._next_outage()
            while not self._over():
                await self._step()
            self._learning = self.parts.view.learning()
            self._arrivals = iter(())
            # Reports are days late: what has not come by then is looked at as what it is, on its way.
            end = self.clock.now + STANDS + IDLE + (FULL if self.faults.full else 0.0)
            self.loop.look(end)
            while self.clock.now < end:
                await self._step()
            self.watcher.trained(self.learner.trained)
            said = {name: at for name, at in self._said.items() if at < self.clock.now - IDLE}
            written = _written(self._state / "store.db")
            await self.watcher.audit(self.store, self._sent, said, written, self.clock.now)
            self._effect = await self.store.ask(_effect)
        finally:
            await self.store.aclose()

    async def _step(self) -> None:
        await self.loop.step()
        self.watcher.looked({**self.serving, SHADOW: self.shadow}, SHADOW, self.loop.waiting, full=self.faults.full)

    def _over(self) -> bool:
        if self.watcher.broken or self._undone is not None:
            return True
        if self._planted is None or self.cell.scenario == "one_agent":
            done = len(self._settled) >= PROMOTIONS and not self._plants
            return done or self._told is not None or self.runs >= self.cell.limit
        return self.runs - self._planted[1] >= max(self.cell.undoing, _AFTER_HOURS * 60.0 * self.cell.rate)

    @property
    def _plants(self) -> bool:
        return self.cell.scenario in ("fall", "one_agent")

    def _now(self) -> tuple[int, float]:
        return self.runs, (self.clock.now - _EPOCH) / 3600.0

    # What comes from outside.

    def _next(self) -> None:
        when = next(self._arrivals, None)
        if when is not None:
            self.loop.at(when, self._arrive)

    async def _arrive(self) -> None:
        self.runs += 1
        if self.runs == self._full_at:
            self._fill()
        if self.faults.full:
            self._last = self.runs  # nothing can happen
        silent = self.runs - self._last
        if silent > self.cell.patience * self.cell.bound:
            learning = self.parts.view.learning()
            if learning is not None or not self.loop.gone:
                self.watcher.silent(silent, learning.sentence if learning is not None else "")
            waits = silent > _PATIENCE * self.cell.patience * self.cell.bound or self._still(learning)
            self._stands = self._stands or (learning is not None and learning.state != "frozen" and waits)
        elif self.runs % _LOOK == 0:
            self._still(self.parts.view.learning())
        engine = self._route()
        version = self.serving[engine].current
        run = self.traffic.run(self.clock(), version, engine)
        self._next()
        if not self.serving[engine].down:
            self._send(run)

    def _route(self) -> str:
        """As the tap does: a share to the engine with the trial, the rest to the others."""
        names = [name for name, engine in self.serving.items() if not engine.down] or list(self.serving)
        fleet = self.parts.swapper.fleet
        if len(names) > 1 and fleet.canary is not None and fleet.canary_engine in names:
            if self._routes.random() < fleet.engines[fleet.canary_engine].canary_share:
                return fleet.canary_engine
            names.remove(fleet.canary_engine)
        return self._routes.choice(names)

    def _send(self, run: Run) -> None:
        if not self.cell.exchanges or (not run.reports and self._routes.random() >= self._sampled):
            self._send_closed(run)
            return
        for number, exchange in enumerate(exchanges(run)):
            self._sent.append(exchange.id)
            self._later(exchange.started + exchange.duration, TRAFFIC_EXCHANGE, exchange)
            if number:
                self.loop.look(gathered(exchange.started + exchange.duration + IDLE + 1.0))
        for number, (at, _) in enumerate(run.reports):
            said = report(run, number)
            self._said[said.id] = at
            self._later(at, TRAFFIC_FEEDBACK, said)
            self.loop.look(gathered(at + GATHER))

    def _later(self, when: float, subject: str, message: Message) -> None:
        async def comes() -> None:
            if subject == TRAFFIC_FEEDBACK:
                self._reported.add(message.id)
                self._settle()
            self.loop.say(subject, message)

        self.loop.at(gathered(when), comes)

    def _send_closed(self, run: Run) -> None:
        attributed, when = closed(run)

        async def closes() -> None:
            if self.faults.full:
                # As the assembler, which waits with it in hand.
                self.loop.at(self.clock.now + GRID, closes)
                return
            if attributed.trajectory.outcome is None and not run.reports:
                self._silent.append(run)
                if len(self._silent) < _SILENT:
                    return
                batch, self._silent = self._silent, []
            else:
                batch = [run]
            items = [closed(one)[0] for one in batch]
            judged = [] if self.cell.exchanges else items
            await self.store.save([*(item.trajectory for item in items), *judged])
            for item in items:
                if item.trajectory.outcome is not None:
                    self._reported.add(item.id)
                self.loop.say(TRAJECTORY_CLOSED, item.trajectory)
                if not self.cell.exchanges:
                    self.loop.say(TRAJECTORY_ATTRIBUTED, item)
            self._settle()

        self.loop.at(gathered(when), closes)
        for number, (at, outcome) in enumerate(run.reports):
            if number or attributed.trajectory.outcome is None:
                said = msgspec.structs.replace(report(run, number), trajectory_id=run.id)

                async def comes(said: Any = said, outcome: float = outcome) -> None:
                    if self.faults.full:
                        self.loop.at(self.clock.now + GRID, lambda: comes(said, outcome))
                        return
                    # As the assembler does: it is written down, and the run's row takes the outcome over.
                    self._reported.add(run.id)
                    changed = await self.store.save([said, Joined(id=said.id, trajectory_id=run.id, outcome=outcome)])
                    self.loop.say(TRAFFIC_FEEDBACK, said)
                    for one in changed:
                        self.loop.say(TRAJECTORY_OUTCOME, one)
                    self._settle()

                self.loop.at(gathered(max(at, when + 1.0)), comes)

    def _fill(self) -> None:
        """The disk is full, for an hour or as long as a quarter of the cell takes."""
        self.faults.full = True
        self.faults.count("disk_full")

        async def cleared() -> None:
            self.faults.full = False

        self.loop.at(self.clock.now + min(FULL, self.cell.limit / 4 * 60.0 / self.cell.rate), cleared)

    def _next_outage(self) -> None:
        async def begins() -> None:
            engine = self._outages.choice([*self.serving.values(), self.shadow])
            engine.down = True
            self.faults.count("engine_down")

            async def ends() -> None:
                engine.down = False

            self.loop.at(self.clock.now + _OUTAGE, ends)
            if self.cell.limit > self.runs:
                self._next_outage()

        self.loop.at(self.clock.now + self._outages.expovariate(1.0 / _BETWEEN), begins)

    def _dies(self) -> None:
        if self.faults.strikes("died_in_swap", 0.05):
            raise DaemonDied

    # What is published.

    def published(self, subject: str, message: Message) -> None:
        """What the learner makes of it, and the person who looks at a freeze."""
        self._seen(message)
        if subject in (WORK_TRAIN, POLICY_DIRECTIVE) and isinstance(message, BatchOrder | Directive):
            seconds = TRAIN_SECONDS if isinstance(message, BatchOrder) else BACK_SECONDS
            self._busy = max(self._busy, self.clock.now) + seconds + self.faults.delay()

            async def answers(message: BatchOrder | Directive = message) -> None:
                found = self.learner.answer(message)
                if found is not None:
                    self.loop.say(POLICY_CANDIDATE, found)

            self.loop.at(self._busy, answers)
        if isinstance(message, Directive) and message.kind == "freeze":
            self.loop.at(self.clock.now + _THAW, self._thaw)

    async def _thaw(self) -> None:
        """Somebody looked, and lets learning go on."""
        if await self.store.frozen():
            self._thaws += 1
            order = Directive(
                id=derived_id("thaw", self._thaws), kind="thaw", reason="looked at", origin="operator",
                created=self.clock(),
            )  # fmt: skip
            self.loop.say(POLICY_DIRECTIVE, sign(order, self.key))

    def _seen(self, message: Message) -> None:
        self.watcher.seen(message)
        match message:
            case BatchOrder():
                self._happened("order")
                self._last_order = self.runs
            case Candidate(answer=answer):
                self.counts[answer] += 1
            case Verdict(decision=decision):
                self._happened(decision)
            case Serving(result="swapped", engine=engine) as serving if engine in self.serving:
                self._happened("swap")
                self._swapped(serving)
            case Directive() as directive:
                self.counts[directive.kind] += 1
                self._directive(directive)
            case _:
                pass

    def _happened(self, what: str) -> None:
        self.counts[what] += 1
        self._last = self.runs

    def _swapped(self, serving: Serving) -> None:
        version = serving.version
        if version not in self._served and version > serving.previous:
            self.counts["promotion"] += 1
            # What the tokens say does not change, only what comes of them: no gate can see it.
            if self._plants and self._planted is None and self._may_fall(serving.previous):
                everybody = frozenset(range(self.cell.agents))
                self.policies.plant(version, everybody if self.cell.scenario == "fall" else frozenset({0}))
                self._planted = version, self.runs
            self._first = self._first or self._now()
            self._settling[version] = len(self._reported)
        self._served.add(version)
        serve = {engine.current for engine in self.serving.values()}
        if self._planted is not None and self._undone is None and not serve & self.policies.broken.keys():
            self._undone = self.runs - self._planted[1]

    def _may_fall(self, version: int) -> bool:
        """Whether there is something to fall from: a version has stayed and does well, and whoever is to fall has been
        heard of."""
        heard = len(self._reported)
        if self.cell.scenario == "fall":
            heard *= self.cell.agents * self.cell.honest / self.cell.reported  # of all together, who told the truth
        enough = heard >= _HEARD * self.cell.agents
        return bool(self._settled) and self.policies.mean(version) >= _WELL and enough

    def _directive(self, directive: Directive) -> None:
        version = directive.details.get("version", "")
        if directive.origin == "sentinel":
            self.found[f"{directive.kind} {directive.details.get('cause', '')}"] += 1
        if directive.kind == "rollback" and version.isdecimal():
            self._settling.pop(int(version), None)
            self._settled.discard(int(version))
        if directive.kind == "roll_on" and version.isdecimal():
            self._settles(int(version))
        if self._planted is not None and self._told is None and self.cell.scenario == "one_agent":
            mine = directive.kind == "rollback" or "agent" in directive.details
            fails = version.isdecimal() and int(version) in self.policies.broken
            self._told = self.runs - self._planted[1] if mine and fails else None

    def _settle(self) -> None:
        for version, since in list(self._settling.items()):
            if len(self._reported) - since >= _SETTLED:
                fleet = self.parts.swapper.fleet
                if fleet.canary != version and version not in fleet.banned:
                    self._settles(version)

    def _settles(self, version: int) -> None:
        self._settling.pop(version, None)
        self._settled.add(version)

    def result(self, seconds: float) -> Ran:
        learning, first = self._learning, self._first
        serves = [engine.current for engine in self.serving.values()]
        return Ran(
            name=self.cell.name, seed=self.seed, scenario=self.cell.scenario, runs=self.runs,
            days=round(self._now()[1] / 24.0, 3), reported=self._effect[0],
            effect=self._effect[1] / self._effect[0] if self._effect[0] else None, first_promotion=first,
            settled=len(self._settled),
            ratio=(self.runs if first is None else first[0]) / self.cell.bound, counts=dict(self.counts),
            found=dict(self.found), planted=self._planted is not None, undone=self._undone, told=self._told,
            faults=dict(self.faults.met), skill=self.policies.mean(serves[0]), stuck=self._stuck(),
            says="" if learning is None else f"{learning.state}: {learning.sentence}",
            broken=tuple(self.watcher.broken), digest=self.loop.digest, seconds=round(seconds, 2),
        )  # fmt: skip

    def _still(self, learning: Learning | None) -> bool:
        """Whether what it waits for has not come any nearer for a bound of runs."""
        if learning is not None and self._evidence != (learning.waits_for, learning.have):
            self._evidence, self._grew = (learning.waits_for, learning.have), self.runs
        return self.runs - self._grew > self.cell.bound

    def _stuck(self) -> str:
        if self._stands:
            return f"nothing for {self.cell.patience:g} bounds of runs"
        stands = self._learning is None or (self._learning.state != "frozen" and self._still(self._learning))
        if stands and self.runs >= self.cell.limit and self._last_order <= self.runs * 2 // 3:
            return f"last order at run {self._last_order} of {self.runs}"
        return ""


def simulate(cell: Cell, seed: int, parts: type[Parts] | None = None) -> Ran:
    began = time.process_time()
    with silence(), in_one_thread(), tempfile.TemporaryDirectory(prefix="weather-", dir=memory()) as state:
        world = World(cell, seed, state=Path(state), parts=parts)
        with full_for_files(world.faults):
            # Trio shuffles its tasks; the same seed must give the same cell.
            anyio.run(world.play, backend="asyncio")
        return world.result(time.process_time() - began)


def _effect(connection: Connection) -> tuple[int, int]:
    """Runs of production that were reported, and those of them whose outcome somebody took in, or the gate has."""
    reported = select(func.count()).where(Runs.source == "production", Runs.outcome.is_not(None))
    taken = (Runs.came == "held out") | Runs.id.in_(select(Uses.trajectory_id))
    return connection.scalar(reported) or 0, connection.scalar(reported.where(taken)) or 0


def _written(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("select id from feedback")}

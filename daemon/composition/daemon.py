"""The daemon's parts, made from the settings, and their tasks, given to the supervisor.

In the order in which a call comes through them. That is for the reader: tasks start together, and each waits for what
it needs.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
import msgspec
import structlog
from prometheus_client.core import Metric
from starlette.routing import Route

from actors.credit.attributor import Attributor
from actors.curation.curator import Curator
from actors.deployment.swapper import Swapper
from actors.experience.experiencer import Experiencer
from actors.experience.forgetting import forget
from actors.experience.navigator import Navigator
from actors.experience.probing import Prober, engine_player
from actors.experience.skill_trials import SkillReplayer
from actors.gate.gatekeeper import Gatekeeper
from actors.kinds.kinds import Kinds
from actors.messages import Directive, Experience
from actors.monitoring.sentinel import Sentinel
from actors.monitoring.settings import Actions
from actors.ports.environments import Environment
from actors.ports.models import Embedder, Grader, needs_reference, words_alone
from actors.rollout.rollout import Rollout
from actors.store.engine import sqlite_file
from actors.system.actor import Actor
from actors.system.backpressure import Backpressure
from actors.system.broker_health import heal
from actors.system.lifecycle import STALL_SECONDS, Lifecycle, Task
from actors.system.notify import Notify
from actors.system.outgoing import outgoing
from actors.system.runner import drive
from actors.system.streams import EXPERIENCE_LESSON, POLICY_DIRECTIVE
from actors.system.supervisor import Supervisor
from actors.tasks.failures import LiveFailures
from actors.tasks.mixture import Mixture
from actors.tasks.questioner.actor import Questioner
from actors.tasks.questioner.generating import Generator
from actors.tasks.searching import ShadowSearch
from actors.trajectories.assembler import Assembler
from actors.trajectories.stitching import Limits
from actors.versions.version_timeline import VersionTimeline
from adapters.environments.synthetic_tasks import SyntheticTasks
from adapters.redaction import Redactor
from daemon.api.control import Control
from daemon.api.experience import ExperienceApi
from daemon.api.health import Heads
from daemon.api.killswitch import ORIGIN, KillSwitch
from daemon.api.listener import observe
from daemon.api.live import LiveRoutes
from daemon.api.orders import Orders, notice
from daemon.api.run_story import RunStoryApi
from daemon.api.tasks import TaskApi
from daemon.api.trajectories import TrajectoryApi
from daemon.api.versions import VersionApi
from daemon.collectors import parts as shown
from daemon.collectors.learning import LearningView, learning_figures
from daemon.composition import values
from daemon.composition.environments import sandbox_environment, searching
from daemon.composition.gate import gate_trial
from daemon.composition.harness import harness
from daemon.composition.resources import Resources
from daemon.experience.forgetting import Forgetter
from daemon.experience.service import ExperiencePool
from daemon.ingest.dead_letters import collect, put_back
from daemon.live.registry import Live
from daemon.processes.tap_settings import ROUTES, redaction
from daemon.settings.pace import PACES
from daemon.settings.tables import SHADOW, Config
from daemon.upkeep.retention import Retention, retention_figures
from daemon.upkeep.swaps import Swaps

log = structlog.get_logger(__name__)
A = TypeVar("A", bound=Actor)
LONG = 900.0
"""Seconds without a heartbeat, for those whose handlers play dozens of episodes or wait for a swap."""
_REMEMBERED_SECONDS = 31 * 86_400.0
"""Marks of handled records are kept for longer than any stream keeps a record (30 days): it could still come again."""
_HOUSEKEEPING_SECONDS = 3600.0


class Daemon:
    """One daemon; `supervisor` has its tasks. ConfigError: an adapter, a key file or an address of the settings cannot
    be used."""

    def __init__(self, config: Config, parts: Resources, everywhere: Mapping[str, Task], notify: Notify) -> None:
        """`everywhere` are tasks of a daemon that does not lead as well (`capture`)."""
        self.config, self.parts, self.store, self.clock = config, parts, parts.store, time.time
        self.pace = PACES[config.profile]
        self.supervisor = Supervisor(rng=random.Random(), notify=notify)
        self.times = VersionTimeline(self.clock)
        self._backpressure = Backpressure()
        self.routes: list[Route] = []
        """For the control API, of subsystems that are not always there."""

        # Shared: where episodes are played, what finds texts, what is played next, what is alike.
        live, grader = self._live(), parts.adapter("grader")
        sandbox = parts.closing(sandbox_environment(config.sandbox, parts.registry, live.sandbox_tools, grader))
        embedder = parts.adapter("embedder")
        self.kinds = Kinds()
        self.curriculum = values.curator(config).curriculum(self.kinds)
        environment = searching(sandbox, config.sandbox, embedder)

        # Calls are linked into trajectories, whose steps get credit; lessons are drawn from them, and batches picked.
        self._capture(everywhere)
        self._trajectories()
        self.attributor = self._credit()
        self.navigator = self._experience(environment, embedder)
        self.curator = self._curation()

        # The learner, a process of its own, gets the batches over the bus, and announces candidates there. The sandbox
        # is played with the newest of them, and the gate compares it with what serves.
        loaded = self._rollout(environment, grader)
        self._questions(sandbox, embedder)
        swaps = self._swaps()
        self.gatekeeper = self._gate(environment, swaps, loaded)

        # What it promotes is brought in and watched; the next calls are its own.
        self.kill = KillSwitch(config.state)
        self.swapper, self.orders = self._deployment(swaps)
        self.learning, self.sentinel = self._monitoring()
        self._api(self._upkeep())

    def act(
        self, actor: A, figures: Callable[[A], Iterable[Metric]] | None = None,
        *, stall_seconds: float = STALL_SECONDS, lane: str = "",
    ) -> None:  # fmt: skip
        """Supervise `actor`, and show its `figures`; `lane` tells a second task of it from the first."""
        if figures is not None:
            self.parts.figures(figures, actor)

        async def task(lifecycle: Lifecycle) -> None:
            await drive(
                actor, self.parts.bus, self.store, lifecycle, rng=self.rng(actor.name), metrics=self.parts.metrics,
                backpressure=self._backpressure,
            )  # fmt: skip

        self.supervisor.add(actor.name + lane, task, stall_seconds=stall_seconds)

    def rng(self, name: str) -> random.Random:
        """One for the part `name`: what it draws follows from the seed, whatever the others draw."""
        return random.Random(f"{self.config.seed}-{name}")

    def _live(self) -> LiveRoutes:
        """The live APIs that are registered; their shadow is an environment."""

        async def note(what: str, details: dict[str, str], by: str) -> None:
            await self.store.save([notice(what, details, by=by, now=time.time())])

        live = Live(self.config.apis, self.config.state, note=note)
        self.parts.figures(shown.live_figures, live)
        self.supervisor.add("live", live.run, critical=False)
        routes = LiveRoutes(live)
        self.routes += routes.routes()
        return routes

    def _capture(self, everywhere: Mapping[str, Task]) -> None:
        """What agents do goes to the bus, which is kept whole."""
        for name, task in everywhere.items():
            self.supervisor.add(name, task)
        letters = partial(collect, self.parts.bus, self.store)
        self.supervisor.add("dead_letters", letters, critical=False)
        if not self.config.nats.url:
            watched = partial(heal, self.config.state / "broker", self.parts.bus.host)
            self.supervisor.add("broker", watched, critical=False)

    def _trajectories(self) -> None:
        """Calls to trajectories."""
        config, engines = self.config, self.parts.serving
        assembler = Assembler(
            limits=Limits(idle_seconds=60.0 * config.runs.idle_minutes),
            processed_logprobs=[one.name for one in config.engines if one.logprobs == "processed"],
            store=self.store, clock=time.monotonic, serving=self.times.version,
            engine=engines[next(iter(engines))],
            engines={name: one.sampling_defaults for name, one in engines.items()},
        )  # fmt: skip
        self.act(assembler, shown.assembler_figures)

    def _credit(self) -> Attributor:
        """Trajectories to labels, a step each."""
        judge, limits = self.config.judge, self.config.limits
        attributor = Attributor(
            judge=self.parts.adapter("judge"), concurrency=limits.judge_calls, share=judge.share,
            tokens_per_day=judge.tokens_per_day, store=self.store,
        )  # fmt: skip
        # Two lanes share its judge's slots: while one writes a batch, or waits for its slowest, the other keeps them
        # busy.
        self.act(attributor, shown.attributor_figures, stall_seconds=LONG)
        self.act(attributor, stall_seconds=LONG, lane="-2")
        return attributor

    def _experience(self, environment: Environment | None, embedder: Embedder) -> Navigator:
        """What is learned without the weights: lessons are found, drawn, probed and, in a sandbox, tried."""
        config, parts = self.config, self.parts
        navigator = Navigator(
            store=self.store, embedder=None if words_alone(embedder) else embedder, rng=self.rng("navigator"),
            rewriter=parts.adapter("rewriter"), enabled=config.lessons.per_prompt > 0,
        )  # fmt: skip
        self.act(navigator, shown.navigator_figures)
        prober = tester = None
        if environment is not None:
            player = engine_player(parts.shadow, config.sandbox.max_steps, config.sandbox.max_tokens)
            families = config.sandbox.families or None
            prober = Prober(environment=environment, player=player, clock=self.clock, families=families)
            tester = SkillReplayer(environment, config.sandbox.families)
        experiencer = Experiencer(
            store=self.store, prober=prober, clock=self.clock, draw=config.lessons.draw, embedder=embedder,
            tester=tester, extractor=parts.adapter("extractor"), kinds=self.kinds,
        )  # fmt: skip
        self.act(experiencer, shown.experience_figures, stall_seconds=LONG)
        return navigator

    def _curation(self) -> Curator:
        """Labelled trajectories to orders for the learner."""
        curator = Curator(
            values.curator(self.config), store=self.store, batches=self.config.state / "batches", clock=self.clock,
            curriculum=self.curriculum,
        )  # fmt: skip
        self.parts.figures(shown.provisional_figures, curator)
        self.parts.figures(shown.outcome_figures, self.store)
        self.act(curator, shown.curator_figures)
        return curator

    def _rollout(self, environment: Environment | None, grader: Grader | None) -> Callable[[int], None]:
        """Groups of attempts at the environment's tasks and at those that are made here; who is to be told each version
        that the shadow engine took."""
        if environment is None:
            return lambda version: None
        config, shadow, curriculum = self.config, self.parts.shadow, self.curriculum
        playing = SyntheticTasks(environment, grader)
        mixture = Mixture(config.tasks.share, book=self.store, curriculum=curriculum, clock=self.clock)
        searcher = None
        if grader is not None and not needs_reference(grader):  # nobody has gone that way: there is no reference
            searcher = ShadowSearch(
                engine=shadow, environment=playing, grader=grader, rng=self.rng("tasks"), clock=self.clock,
                max_steps=config.sandbox.max_steps, max_tokens=config.sandbox.max_tokens,
                step_timeout=config.limits.turn_seconds,
            )  # fmt: skip
        counts = {"mixture": mixture.counts}
        if "failures" in config.tasks.make:
            failures = LiveFailures(
                store=self.store, environment=environment, families=config.sandbox.families or None, kinds=curriculum,
                searcher=searcher,
            )  # fmt: skip
            counts["failures"] = failures.counts
            self.act(failures, stall_seconds=LONG)
        player = Rollout(
            values.rollout(config), store=self.store, engine=shadow, environment=playing,
            retriever=self.navigator, clock=self.clock, rng=self.rng("rollout"), planner=curriculum, times=self.times,
            harness=harness(config.sandbox, config.limits.turn_seconds), mixture=mixture,
            trains=lambda version: self.curator.pool.trains(version),
        )  # fmt: skip
        self.parts.figures(shown.task_figures, counts)
        self.act(player, shown.rollout_figures, stall_seconds=LONG)
        self.routes += TaskApi(self.store, curriculum, counts).routes()
        return player.loaded

    def _questions(self, sandbox: Environment | None, embedder: Embedder) -> None:
        """Tasks of one's own; the sandbox shows all its tools there, whatever the tool search shows to others."""
        config = self.config
        if sandbox is None or "questions" not in config.tasks.make:
            return
        generator = partial(
            Generator, values.questioner(config), sandbox, clock=time.monotonic, seed=config.seed, embedder=embedder,
            wording=self.parts.adapter("wording"),
        )  # fmt: skip
        asking = Questioner(store=self.store, make=lambda state: generator(state=state))
        self.act(asking, shown.questioner_figures, stall_seconds=LONG)

    def _swaps(self) -> Swaps:
        """What carries out swaps, for the gate on the shadow engine, for the swapper on those that serve."""
        config, parts = self.config, self.parts
        return Swaps(
            config.state / "swaps", parts.engines, inline=frozenset({SHADOW}), weights=parts.weights,
            store=self.store, holder=parts.lead.holder,
            seconds=config.limits.swap_seconds, epoch=lambda: parts.lead.epoch,
        )  # fmt: skip

    def _gate(self, environment: Environment | None, swaps: Swaps, loaded: Callable[[int], None]) -> Gatekeeper:
        """Candidates to verdicts."""
        config, parts, pace = self.config, self.parts, self.pace
        gatekeeper = Gatekeeper(
            gate_every=config.gate.every, gate_seconds=values.gate_seconds(config),
            tick_seconds=pace.gate_tick_seconds, store=self.store, shadow=parts.shadow, shadow_name=SHADOW,
            runner=swaps,
            trial=gate_trial(config, store=self.store, shadow=parts.shadow, environment=environment),
            versions=parts.versions, key=parts.provenance.key("gate"), clock=self.clock, times=self.times,
            loaded=loaded,
        )  # fmt: skip
        self.act(gatekeeper, stall_seconds=LONG)
        return gatekeeper

    def _deployment(self, swaps: Swaps) -> tuple[Swapper, Orders]:
        """Promoted versions to the engines that serve; the kill switch and operators' orders overrule it."""
        config, parts = self.config, self.parts
        key, keys = parts.provenance.key("gate"), parts.provenance.trusted("gate")
        swapper = Swapper(
            reconcile_seconds=self.pace.reconcile_seconds, swap_timeout=config.limits.swap_seconds,
            canary=values.canary(config), store=self.store, engines=parts.serving,
            runner=swaps, versions=parts.versions, key=key, keys=keys, clock=self.clock, times=self.times,
            routes=config.state / ROUTES, weights={one.name: one.weight for one in config.engines},
            halted=self.kill.reason, kinds=self.kinds,
        )  # fmt: skip
        self.act(swapper, shown.fleet_figures, stall_seconds=LONG)
        orders = Orders(
            store=self.store, fleet=lambda: swapper.fleet, kill=self.kill, send=self._send, key=key, keys=keys,
            clock=self.clock,
        )  # fmt: skip
        watch = partial(self.kill.watch, store=self.store, order=partial(orders.issue, origin=ORIGIN))
        self.supervisor.add("kill_switch", watch)
        return swapper, orders

    async def _send(self, directive: Directive) -> None:
        await self.store.save([directive])
        await self.parts.bus.publish([outgoing(POLICY_DIRECTIVE, directive)])

    def _monitoring(self) -> tuple[LearningView, Sentinel]:
        """Whether there is learning at all, and whether production got worse."""
        learning = LearningView(
            curator=self.curator, gatekeeper=self.gatekeeper, fleet=lambda: self.swapper.fleet,
            canary=values.canary(self.config), halted=self.kill.reason, clock=self.clock,
        )  # fmt: skip
        self.parts.figures(learning_figures, learning)
        sentinel = Sentinel(
            msgspec.convert(self.config.watch, Actions, from_attributes=True), store=self.store,
            engines=self.parts.engines, clock=self.clock, kinds=self.kinds,
        )  # fmt: skip
        self.act(sentinel, shown.sentinel_figures)
        return learning, sentinel

    def _upkeep(self) -> Forgetter:
        """Housekeeping every hour; the forgetter takes orders besides."""
        config = self.config
        forgetter = Forgetter(
            store=self.store, lessons=forget, memory=config.state / "learner", clock=self.clock,
        )  # fmt: skip
        retention = Retention(
            config.keep, store=self.store, state=config.state, database=sqlite_file(config.store_url),
            clock=self.clock,
        )  # fmt: skip
        self.parts.figures(retention_figures, retention)
        task = partial(self._housekeeping, forgetter, retention)
        self.supervisor.add("housekeeping", task, critical=False, stall_seconds=3600.0)
        return forgetter

    async def _housekeeping(self, forgetter: Forgetter, retention: Retention, lifecycle: Lifecycle) -> None:
        """Every hour, forget what no stream can bring back: marks and sent outputs in the store, payloads of the
        bus."""

        def going() -> bool:
            lifecycle.beat()
            return not lifecycle.draining.is_set()

        lifecycle.ready()
        await forgetter.resume()
        while going():
            forgotten = await self.store.prune(time.time() - _REMEMBERED_SECONDS)
            swept = await self.parts.bus.sweep_claims(time.time())
            log.info("housekeeping", rows=forgotten, claims=swept)
            await retention.round(going)
            woken = anyio.current_time() + _HOUSEKEEPING_SECONDS
            while anyio.current_time() < woken and await lifecycle.pause(30.0):
                going()

    def _api(self, forgetter: Forgetter) -> None:
        """JSON, `/metrics` and the dashboard."""
        config, parts, supervisor = self.config, self.parts, self.supervisor
        pool = ExperiencePool(
            store=self.store, search=self.navigator.search, redact=Redactor(redaction(config)).text, send=self._teach,
            clock=self.clock,
        )  # fmt: skip
        heads = Heads()
        control = Control(
            store=self.store, registry=parts.registry, actors=supervisor.state,
            orders=self.orders, sentinel=self.sentinel.status,
            fleet=lambda: self.swapper.fleet, halted=self.kill.reason, learning=self.learning.status,
            serving=tuple(parts.serving), judge=self.attributor.report,
            retry=partial(put_back, parts.bus, self.store), still=lambda: heads.still(time.monotonic()),
            describe={
                "sandbox": config.sandbox.environment or None,
                "engines": {name: engine.url for name, engine in parts.engines.items()},
                "tap": f"http://{config.tap.listen}",
            },
            routes=[
                *ExperienceApi(pool, forgetter).routes(), *self.routes, *TrajectoryApi(self.store).routes(),
                *RunStoryApi(self.store).routes(),
                *VersionApi(self.store, parts.provenance.trusted("gate"), parts.versions).routes(),
            ],
        )  # fmt: skip
        look = partial(observe, supervisor, parts.bus, parts.metrics, heads)
        supervisor.add("control", parts.listener.task(control.app, look))

    async def _teach(self, lessons: Sequence[Experience]) -> None:
        await self.parts.bus.publish([outgoing(EXPERIENCE_LESSON, lesson) for lesson in lessons])

"""`evolved run`: the daemon. Builds every part from the settings, gives them to the supervisor, and ends with it.

trio runs as a guest on the asyncio loop that nats-py lives on; the actors, the shipper, the control API and the metrics
are supervised tasks of one process. It holds no weights and no torch.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from prometheus_client import CollectorRegistry

from actors.credit.attributor import Attributor
from actors.curation.curator import Curator
from actors.deployment.swapper import Swapper
from actors.experience.experiencer import Experiencer
from actors.experience.forgetting import forget
from actors.experience.navigator import Navigator
from actors.experience.probing import Prober, engine_player
from actors.experience.skill_trials import SkillReplayer
from actors.gate.gatekeeper import Gatekeeper
from actors.messages import Directive, Experience
from actors.monitoring.sentinel import Sentinel
from actors.rollout.rollout import Rollout
from actors.system import runtime
from actors.system.actor import Actor, Producer
from actors.system.backpressure import Backpressure
from actors.system.bus import outgoing
from actors.system.cache_invalidation import CacheInvalidation
from actors.system.errors import Escalated
from actors.system.leadership import Meanwhile
from actors.system.lifecycle import Lifecycle, Restart
from actors.system.notify import Notify
from actors.system.runner import run_actor, run_producer
from actors.system.streams import EXPERIENCE_LESSON, POLICY_DIRECTIVE
from actors.system.supervisor import Supervisor
from actors.trajectories.assembler import Assembler
from actors.versions.version_timeline import VersionTimeline
from adapters.redaction import Redactor
from daemon.api.control import Control
from daemon.api.control_task import control_task
from daemon.api.experience import ExperienceApi
from daemon.api.killswitch import ORIGIN, KillSwitch
from daemon.api.orders import Orders
from daemon.api.trajectories import TrajectoryApi
from daemon.api.versions import VersionApi
from daemon.collectors.credit import AttributorCollector
from daemon.collectors.curation import CuratorCollector
from daemon.collectors.experience import ExperienceCollector
from daemon.collectors.fleet import FleetCollector
from daemon.collectors.learning import LearningCollector, LearningView
from daemon.collectors.monitoring import SentinelCollector
from daemon.collectors.navigator import NavigatorCollector
from daemon.collectors.trajectories import AssemblerCollector
from daemon.composition.cluster import LeaderCollector, leader_view, reading_along
from daemon.composition.environments import sandbox_environment
from daemon.composition.gate import gate_trial
from daemon.composition.harness import manner
from daemon.composition.live import live_apis
from daemon.composition.questioner import QuestionerCollector, questioner
from daemon.composition.reloading import Reloading
from daemon.composition.resources import Resources
from daemon.composition.tasks import Tasks
from daemon.composition.toolsearch import searching
from daemon.errors import DaemonError, StartFailed
from daemon.experience.forgetting import Forgetter
from daemon.experience.service import ExperiencePool
from daemon.ingest.otlp_receiver import IntakeCollector, OtlpIntake, agent_keys
from daemon.ingest.shipper import Shipper, ShipperMetrics
from daemon.ingest.spool_lock import alone
from daemon.processes import preflight
from daemon.processes.state_lock import state_lock
from daemon.settings.config import SHADOW, Config, curator_settings, serving_engines, tap_settings
from daemon.tap.errors import TapError
from daemon.tap.spools import spools
from daemon.upkeep.provenance import Provenance
from daemon.upkeep.retention import Retention, RetentionCollector, database_file
from daemon.upkeep.swap_intents import SwapIntents
from daemon.upkeep.swaps import Swaps

log = structlog.get_logger(__name__)
T = TypeVar("T")

REMEMBERED_SECONDS = 31 * 86_400.0
"""Marks of handled records are kept for longer than any stream keeps a record (30 days): it could still come again."""
HOUSEKEEPING_SECONDS = 3600.0

CURRICULUM = (
    "group_size", "replay_share", "production_share", "mix_share", "explore", "clusters", "history",
)  # fmt: skip
"""Settings of the curator that others were made with."""

LONG = Restart(stall_seconds=900.0)
"""For those whose handlers play dozens of episodes or wait for a swap."""


def main(config: Config, read: Callable[[], Config] | None = None) -> int:
    """Run until SIGTERM; the exit status (1: cut off at the drain deadline).

    Args:
        read: the settings anew from where `config` came from, for SIGHUP; none: there is nowhere to read them from.

    Raises:
        StartFailed: the broker, the store or an actor does not come up.
    """
    return runtime.run(partial(_serve, config, read or (lambda: config)), backend=config.runtime)


async def _serve(config: Config, read: Callable[[], Config], host: runtime.Host) -> int:
    preflight.daemon(config)
    async with AsyncExitStack() as stack:
        stack.enter_context(state_lock(config.state))
        parts = await Resources.open(config, host, stack)
        supervisor = build(config, parts, read)
        try:
            return 0 if await supervisor.run() else 1
        except Escalated as error:
            raise StartFailed(f"{error.name} keeps failing: {error.__cause__ or error}") from error


def build(config: Config, parts: Resources, read: Callable[[], Config]) -> Supervisor:
    """The supervisor with every task of the daemon; `read` gives the settings anew, for SIGHUP."""
    store, bus, engines, clock = parts.store, parts.bus, parts.engines, time.time
    serving, shadow = {name: engines[name] for name in serving_engines(config)}, engines[SHADOW]
    reloading = Reloading(
        config, read, errors=(DaemonError, TapError), ignores=("tap", "learner", "broker"),
        minds=("tap.door.keys_file", "tap.door.require_key", "tap.spool_dir", "tap.routes_file"),
    )  # fmt: skip
    reloading.register(parts.registry)
    supervisor = Supervisor(
        rng=random.Random(), notify=Notify.from_environment(os.environ), reload=reloading.reload
    )  # fmt: skip
    provenance, versions = Provenance(config.provenance, config.state), config.state / "versions"
    key = provenance.key("gate")
    live, grader = live_apis(config, parts.registry, supervisor, store), parts.adapter("grader", config.grader)
    sandbox = parts.closing(sandbox_environment(config.sandbox, parts.registry, live.sandbox_tools, grader))
    judge, embedder = parts.adapter("judge", config.judge), parts.adapter("embedder", config.embedder)
    environment = searching(sandbox, config.sandbox, embedder)
    rng, times, singletons = partial(_rng, config.seed), VersionTimeline(clock), CollectorRegistry()
    leadership = parts.member.leadership(store.leases, times.forget)
    LeaderCollector(leadership, singletons).register(parts.registry)
    supervisor.add("leadership", leadership.run)
    swaps = Swaps(
        config.state / "swaps", engines, inline=frozenset({SHADOW}), weights=parts.weights,
        intents=SwapIntents(store.leases, config.state / "swaps", parts.member.holder),
        seconds=config.swapper.swap_timeout, epoch=lambda: leadership.epoch,
    )  # fmt: skip

    navigator = Navigator(
        config.navigator, store=store, embedder=embedder, rng=rng("navigator"), directory=config.state / "lessons",
        previous=parts.adapter("embedder", config.embedder_before), rewriter=parts.adapter("rewriter", config.rewriter),
    )  # fmt: skip
    NavigatorCollector(navigator).register(singletons)
    curriculum = config.curator.curriculum()
    rollout = prober = tasks = None
    if environment is not None:
        tasks = Tasks(
            config.tasks, store=store, environment=environment, families=config.rollout.families,
            curriculum=curriculum, clock=clock, engine=shadow, rng=rng("tasks"),
            grader=grader,
        )  # fmt: skip
        rollout = Rollout(
            config.rollout, store=store, engine=shadow, environment=tasks.environment, retriever=navigator, clock=clock,
            rng=rng("rollout"), planner=curriculum, times=times, manner=manner(config.rollout),
            mixture=tasks.mixture,
        )  # fmt: skip
        tasks.register(singletons, rollout)
        prober = Prober(config.probe, environment=environment, player=engine_player(shadow, config.probe), clock=clock)
    trial = gate_trial(config, store=store, shadow=shadow, environment=environment, retriever=navigator)

    pressure, renewal = Backpressure(), CacheInvalidation()
    forgetter = Forgetter(store=store, lessons=forget, renew=renewal.ask, clock=clock)

    def act(
        actor: Actor, restart: Restart | None = None, *, leads: bool = False, renews: bool = False, lane: str = "",
        meanwhile: Meanwhile | None = None,
    ) -> None:  # fmt: skip
        async def task(life: Lifecycle) -> None:
            await run_actor(
                actor, bus, store, life, rng=rng(actor.name), settings=config.actors, metrics=parts.metrics,
                pressure=pressure, leads=leads, renewal=renewal if renews else None,
            )  # fmt: skip

        supervisor.add(actor.name + lane, leadership.holds(task, meanwhile), restart)

    def produce(producer: Producer) -> None:
        async def task(life: Lifecycle) -> None:
            await run_producer(
                producer, bus, store, life, rng=rng(producer.name), settings=config.actors, metrics=parts.metrics
            )

        supervisor.add(producer.name, leadership.holds(task), LONG)

    assembler = Assembler(
        config.assembler, store=store, clock=clock, serving=times.version, ticks=time.monotonic
    )  # fmt: skip
    AssemblerCollector(assembler).register(singletons)
    act(assembler, leads=True, renews=True)
    attributor = Attributor(
        config.attributor, judge=judge, evidence=store, store=store, clock=clock, ticks=time.monotonic
    )  # fmt: skip
    AttributorCollector(attributor).register(singletons)
    # Two lanes share its judge's slots: while one writes a batch, or waits for its slowest, the other keeps them busy.
    act(attributor, LONG, renews=True)
    act(attributor, LONG, lane="-2")
    curator = Curator(
        curator_settings(config), store=store, batches=config.state / "batches", clock=clock, curriculum=curriculum
    )  # fmt: skip
    CuratorCollector(curator).register(singletons)
    act(curator, renews=True)
    act(navigator, renews=True, meanwhile=reading_along(navigator.start, navigator.tick, 1.0))
    experiencer = Experiencer(
        config.experiencer, store=store, prober=prober, clock=clock, embedder=embedder,
        tester=SkillReplayer(config.skill_trials, environment=environment) if environment is not None else None,
        extractor=parts.adapter("extractor", config.extractor),
    )  # fmt: skip
    ExperienceCollector(experiencer).register(singletons)
    act(experiencer, LONG, renews=True)
    if tasks is not None:
        act(tasks.failures, LONG, renews=True)
    gatekeeper = Gatekeeper(
        config.gate.keeper, store=store, shadow=shadow, shadow_name=SHADOW, runner=swaps, trial=trial,
        versions=versions, key=key, clock=clock, times=times,
        loaded=rollout.loaded if rollout else lambda version: None,
    )  # fmt: skip
    act(gatekeeper, LONG)
    kill = KillSwitch(config.state)
    swapper = Swapper(
        config.swapper, store=store, engines=serving, runner=swaps, versions=versions, key=key,
        keys=provenance.trusted("gate"), clock=clock, times=times, routes=Path(tap_settings(config).routes_file),
        halted=kill.reason,
    )  # fmt: skip
    FleetCollector(swapper).register(singletons)
    act(swapper, LONG, meanwhile=reading_along(swapper.look, swapper.look, config.swapper.reconcile_seconds))
    learning = LearningView(
        curator=curator, gatekeeper=gatekeeper, fleet=lambda: swapper.fleet, canary=config.swapper.canary,
        halted=kill.reason, leads=lambda: leadership.leading, clock=clock,
    )  # fmt: skip
    LearningCollector(learning).register(singletons)
    sentinel = Sentinel(config.sentinel, store=store, engines=engines, clock=clock)
    SentinelCollector(sentinel).register(singletons)
    act(sentinel)
    if rollout is not None:
        produce(rollout)
    if sandbox is not None and config.questioner.enabled:
        # All tools, whatever the tool search shows to others: it explores.
        asking = questioner(
            config, store=store, sink=store, environment=sandbox, shadow=shadow, embedder=embedder,
            wording=parts.adapter("wording", config.wording), rng=rng("questioner"),
        )  # fmt: skip
        QuestionerCollector(asking).register(singletons)
        produce(asking)
    shipper = Shipper(
        spools(config.spool, config.tap.workers), bus, settings=config.shipper,
        metrics=ShipperMetrics(parts.registry), rng=rng("shipper"), clock=clock,
    )  # fmt: skip
    supervisor.add("shipper", alone(config.spool, shipper.run))
    if config.intake.otlp:
        intake = OtlpIntake(
            config.intake, bus, redact=Redactor(config.redaction).message, rng=rng("intake"),
            keys=agent_keys(config.keys), require_key=config.tap.door.require_key,
        )  # fmt: skip
        IntakeCollector(intake).register(parts.registry)
        supervisor.add("intake", intake.run)
    retention = Retention(
        config.retention, config.quota, store=store, state=config.state, database=database_file(config.store_url),
        clock=clock,
    )  # fmt: skip
    RetentionCollector(retention, config.quota).register(singletons)
    supervisor.add(
        "housekeeping",
        leadership.holds(partial(_housekeeping, parts, forgetter, retention)),
        Restart(critical=False, stall_seconds=3600.0),
    )
    orders = Orders(
        store=store, fleet=lambda: swapper.fleet, kill=kill, send=partial(_send, parts), key=key,
        keys=provenance.trusted("gate"), clock=clock,
    )  # fmt: skip
    watch = partial(kill.watch, store=store, order=partial(orders.issue, origin=ORIGIN))
    supervisor.add("kill_switch", leadership.holds(watch))
    reloading.part("assembler", assembler.reconfigure)
    reloading.part("attributor", attributor.reconfigure, only=("batch", "patience", "budget"))
    # The curriculum was made from some of them, and the rollout plays groups of that size.
    reloading.part(
        "curator", lambda told: curator.reconfigure(curator_settings(config, told)), but=CURRICULUM
    )  # fmt: skip
    reloading.part("gate.keeper", gatekeeper.reconfigure)
    reloading.part("swapper", swapper.reconfigure, but=("canary",))
    reloading.part("sentinel", sentinel.reconfigure, but=("monitors",))
    pool = ExperiencePool(
        store=store, search=navigator, redact=Redactor(config.redaction).text, send=partial(_teach, parts),
        renew=renewal.ask, clock=clock,
    )  # fmt: skip
    control = partial(
        Control, store=store, registry=parts.registry, actors=lambda: supervisor.state().actors, orders=orders,
        curator=lambda: curator.figures, sentinel=sentinel.status, fleet=lambda: swapper.fleet, halted=kill.reason,
        learning=learning.status, serving=tuple(serving), judge=attributor.report, settings=lambda: reloading.last,
        leader=partial(leader_view, leadership, parts.member),
        routes=[
            *ExperienceApi(pool, forgetter).routes(), *live.routes(), *(tasks.routes() if tasks is not None else ()),
            *TrajectoryApi(store).routes(), *VersionApi(store, provenance.trusted("gate"), versions).routes(),
        ],
    )  # fmt: skip
    supervisor.add("control", control_task(config, parts, supervisor, control))
    return supervisor


async def _send(parts: Resources, directive: Directive) -> None:
    await parts.store.save([directive])
    await parts.bus.publish([outgoing(POLICY_DIRECTIVE, directive)])


async def _teach(parts: Resources, lessons: Sequence[Experience]) -> None:
    await parts.bus.publish([outgoing(EXPERIENCE_LESSON, lesson) for lesson in lessons])


async def _housekeeping(parts: Resources, forgetter: Forgetter, retention: Retention, life: Lifecycle) -> None:
    """Every hour, forget what no stream can bring back: marks and sent outputs in the store, payloads of the bus."""
    life.ready()
    await forgetter.resume()
    while not life.draining.is_set():
        forgotten = await parts.store.prune(time.time() - REMEMBERED_SECONDS)
        swept = await parts.bus.sweep_claims(time.time())
        log.info("housekeeping", rows=forgotten, claims=swept)
        await retention.round(life.draining.is_set, life.beat)
        woken = anyio.current_time() + HOUSEKEEPING_SECONDS
        while anyio.current_time() < woken and await life.pause(30.0):
            life.beat()


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed}-{name}")

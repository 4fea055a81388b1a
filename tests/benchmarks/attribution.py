"""What the attributor adds to its judge: trajectories a second through the actor, beside the bare client; and what it
saves: abstentions, cost and cache on 1,000 trajectories under three settings; and the weight of a judge that errs.

    python -m tests.benchmarks.attribution [--trajectories 960] [--rounds 5] [--json build/attribution.json]

The judge is a scripted endpoint behind real HTTP that takes 50 ms, in a process of its own. The actor has what it has
in production: nats-server, SQLite, the runner in two lanes, trio as a guest. The bare client asks the same endpoint
about the same trajectories at the same concurrency, and nothing else. Rounds are interleaved; figures are medians.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
import numpy as np
import structlog
from prometheus_client import CollectorRegistry

from actors.credit.attributor import Attributor, AttributorSettings
from actors.credit.budget import BudgetSettings
from actors.credit.calibration import CalibrationSettings
from actors.credit.judge_stats import PageReport
from actors.credit.judgement_cache import CacheSettings
from actors.credit.sampling import SamplingSettings
from actors.messages import TokenRow, Trajectory, pack_array
from actors.store import Store
from actors.system import runtime
from actors.system.actor import Received
from actors.system.bus import outgoing
from actors.system.lifecycle import Lifecycle, Restart
from actors.system.metrics import SystemMetrics
from actors.system.nats_bus import NatsBus
from actors.system.nats_client import NatsSettings
from actors.system.runner import run_actor
from actors.system.streams import TRAJECTORY_CLOSED
from actors.system.supervisor import Supervisor
from tests.benchmarks import report
from tests.benchmarks.ablation.labels import label
from tests.support.http_judge import HttpJudge, endpoint
from tests.support.nats import opened_bus, running_broker
from tests.support.ports import free_ports
from tests.support.scripted_judge import Labels, ScriptedJudge
from tests.support.travelling import plays

TOKENS = 1200
"""Of a trajectory; about what the travel desk's have."""
CONCURRENCY = (8, 32)
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
SEEDS = (0, 1, 2, 3, 4)
NO_TRIALS = CalibrationSettings(share=0.0)


def trajectories(count: int, seed: int, *, repeats: int = 0) -> list[Trajectory]:
    """Travel desk trajectories with token rows; the last `repeats` of them say what earlier ones said."""
    rng = np.random.default_rng(seed)
    made: list[Trajectory] = []
    for number, played in enumerate(plays(count - repeats, seed=seed)):
        steps = rng.integers(-1, len(played.trajectory.steps), TOKENS)
        row = TokenRow(
            ids=pack_array(rng.integers(0, 50_000, TOKENS).tolist(), "<i4"),
            step=pack_array(steps.tolist(), "<i2"),
            logprobs=pack_array(np.where(steps >= 0, -rng.random(TOKENS), 0.0).tolist(), "<f4"),
            versions=pack_array(np.where(steps >= 0, 0, -1).tolist(), "<i4"),
        )
        ended = time.time() - count + number
        made.append(msgspec.structs.replace(played.trajectory, rows=(row,), started=ended - 60.0, ended=ended))
    chosen = random.Random(seed).choices(made, k=repeats)
    made += [msgspec.structs.replace(run, id=f"{run.id}-again-{number}") for number, run in enumerate(chosen)]
    return made


class Took:
    """Time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> tuple[float, float]:
        """Of the wall, and of this process' CPU."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


async def bare(runs: Sequence[Trajectory], judge: HttpJudge, concurrency: int) -> tuple[float, float]:
    """Seconds for the client alone, of the wall and of this process' CPU."""
    slots = anyio.CapacityLimiter(concurrency)

    async def one(run: Trajectory) -> None:
        async with slots:
            await judge.label(run)

    began = Took()
    async with anyio.create_task_group() as group:
        for run in runs:
            group.start_soon(one, run)
    return began.seconds()


async def through_actor(
    runs: Sequence[Trajectory],
    judge: HttpJudge,
    settings: AttributorSettings,
    bus: NatsBus,
    directory: Path,
    lanes: int = 2,
) -> tuple[tuple[float, float], Attributor]:
    """Seconds, the same two, from the first fetch until all have been committed and published."""
    store = Store(f"sqlite:///{directory}/evolved.db", clock=time.time)
    await store.open()
    for start in range(0, len(runs), 256):
        await store.save(runs[start : start + 256])
        await bus.publish([outgoing(TRAJECTORY_CLOSED, run) for run in runs[start : start + 256]])
    attributor = Attributor(settings, judge=judge, evidence=store, store=store)
    registry = CollectorRegistry()
    metrics, supervisor = SystemMetrics(registry), Supervisor(rng=random.Random(0))

    async def task(lifecycle: Lifecycle) -> None:
        await run_actor(attributor, bus, store, lifecycle, rng=random.Random(1), metrics=metrics)

    for lane in range(lanes):
        supervisor.add(f"attributor-{lane + 1}", task, Restart(stall_seconds=900.0))
    began = Took()

    async def watch() -> None:
        while (registry.get_sample_value("evolved_actor_handled_total", {"actor": "attributor"}) or 0) < len(runs):  # noqa: ASYNC110 (what is measured must not know that it is)
            await anyio.sleep(0.05)
        supervisor.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(partial(supervisor.run, signals=False))
        await watch()
        taken = began.seconds()
    await store.aclose()
    return taken, attributor


async def throughput(
    host: runtime.Host, count: int, rounds: int, levels: Sequence[int], directory: Path, port: int
) -> dict[str, float]:  # fmt: skip
    rates: dict[tuple[str, int], list[float]] = {}
    burnt: dict[tuple[str, int], list[float]] = {}
    broker_port = free_ports(1)[0]
    async with (
        running_broker(directory, port=broker_port) as broker,
        opened_bus(host, broker, directory, settings=NatsSettings()) as bus,
        HttpJudge(port) as judge,
    ):
        for number in range(rounds):
            for concurrency in levels:
                runs = trajectories(count, 100 * number + concurrency)
                shares = {
                    "actor": AttributorSettings(concurrency=concurrency, calibration=NO_TRIALS),
                    "actor with trials": AttributorSettings(concurrency=concurrency),
                }
                for which in ("bare", *shares):
                    name = f"{number}-{concurrency}-{which.replace(' ', '-')}"
                    if which == "bare":
                        seconds, cpu = await bare(runs, judge, concurrency)
                    else:
                        own = [msgspec.structs.replace(run, id=f"{name}-{run.id}") for run in runs]
                        place = directory / name
                        place.mkdir()
                        (seconds, cpu), _ = await through_actor(own, judge, shares[which], bus, place)
                    rates.setdefault((which, concurrency), []).append(count / seconds)
                    burnt.setdefault((which, concurrency), []).append(1000 * cpu / count)
                    print(f"round {number + 1}/{rounds}, {concurrency} at once, {which}: {count / seconds:.0f}/s",
                          file=sys.stderr, flush=True)  # fmt: skip
    rows: list[list[object]] = []
    figures: dict[str, float] = {}
    for concurrency in levels:
        alone = rates["bare", concurrency]
        for which in ("bare", "actor", "actor with trials"):
            own = rates[which, concurrency]
            shares_of = [100 * rate / base for rate, base in zip(own, alone, strict=True)]
            rows.append(
                [f"{concurrency} at once, {which}", statistics.median(own), min(own), max(own),
                 statistics.median(shares_of), f"{statistics.median(burnt[which, concurrency]):.2f}"]
            )  # fmt: skip
            key = which.replace(" ", "_") + ("" if concurrency == levels[0] else f"_{concurrency}")
            figures[f"{key}_per_s"] = statistics.median(own)
            figures[f"{key}_cpu_ms"] = statistics.median(burnt[which, concurrency])
            if which != "bare":
                suffix = "" if concurrency == levels[0] else f"_{concurrency}"
                name = "attribution_vs_bare" if which == "actor" else "attribution_with_trials_vs_bare"
                figures[name + suffix] = statistics.median(shares_of) / 100
    report.table(
        f"trajectories/s, a judge of 50 ms, {count} trajectories, {rounds} interleaved rounds",
        ("", "median/s", "least", "most", "% of bare", "CPU ms each"), rows,
    )  # fmt: skip
    return figures


async def savings(host: runtime.Host, directory: Path, port: int) -> dict[str, float]:
    """1,000 trajectories, 300 of them repeats, through the actor under three settings."""
    runs = trajectories(1000, 7, repeats=300)
    random.Random(7).shuffle(runs)
    everything = AttributorSettings()
    sampled = AttributorSettings(sampling=SamplingSettings(share=0.1))
    capped = msgspec.structs.replace(sampled, budget=BudgetSettings(tokens_per_day=150_000))
    settings = {
        "all": everything,
        "failures, new kinds, 10 % of the rest": sampled,
        "and 150,000 tokens a day": capped,
    }
    rows: list[list[object]] = []
    figures: dict[str, float] = {}
    broker_port = free_ports(1)[0]
    async with (
        running_broker(directory, port=broker_port) as broker,
        opened_bus(host, broker, directory, settings=NatsSettings()) as bus,
        HttpJudge(port) as judge,
    ):
        for number, (name, one) in enumerate(settings.items()):
            place = directory / str(number)
            place.mkdir()
            own = [msgspec.structs.replace(run, id=f"{number}-{run.id}") for run in runs]
            _, attributor = await through_actor(own, judge, one, bus, place)
            (page,) = [page for page in attributor.pages() if page.tenant == "*"]
            lost = ", ".join(f"{reason} {n}" for reason, n in page.abstained.items())
            rows.append(
                [name, page.judged, page.cached, page.not_sampled, lost, f"{page.tokens:,.0f}", f"{page.money:.2f}"]
            )  # fmt: skip
            assert page.judged + page.cached + page.not_sampled + sum(page.abstained.values()) == len(runs)
            figures |= {
                f"setting_{number}_{key}": value
                for key, value in _flat(page.judged, page.cached, page.not_sampled, page.abstained, page.tokens)
            }
    report.table(
        "1,000 trajectories, 300 of them repeats; 5 % of bodies make the endpoint fail",
        ("judged are", "judged", "cached", "not sampled", "abstained", "tokens", "money"), rows,
    )  # fmt: skip
    return figures


async def weights(count: int, seeds: Sequence[int]) -> dict[str, float]:
    """The automatic weight by the share of wrong labels: `count` trajectories each, all of them shown blind."""
    rows: list[list[object]] = []
    figures: dict[str, float] = {}
    settings = AttributorSettings(
        cache=CacheSettings(entries=0), calibration=CalibrationSettings(share=1.0)
    )  # fmt: skip
    for desk, families in (("short", "AABBC"), ("long", "L")):
        desks = {seed: list(plays(count, seed=seed, families=families)) for seed in seeds}
        for source in ("oracle", "rules"):
            for wrong in NOISE:
                found: list[PageReport] = []
                for seed in seeds:
                    seen: dict[str, Labels] = {}
                    blind: dict[str, Labels] = {}
                    rng, batch = random.Random(f"{seed}-{wrong}"), list[Received]()
                    for played in desks[seed]:
                        run = played.trajectory
                        hidden = msgspec.structs.replace(run, outcome=None)
                        for where, shown in ((seen, run), (blind, hidden)):
                            where[run.id] = label(source, shown, played.truth, rng, wrong=wrong, silent=0.0)
                        batch.append(Received(run.id, TRAJECTORY_CLOSED, run))
                    attributor = Attributor(settings, judge=ScriptedJudge(seen, blind))
                    await attributor.handle(batch)
                    found += [page for page in attributor.pages() if page.tenant == "default"]
                figure = partial(_median, found)
                rows.append(
                    [f"{desk} desk, {source}, {100 * wrong:.0f} % wrong",
                     figure(lambda page: page.outcomes.agreement and page.outcomes.agreement.value),
                     figure(lambda page: page.outcomes.precision_good and page.outcomes.precision_good.value),
                     figure(lambda page: page.outcomes.precision_bad and page.outcomes.precision_bad.value),
                     figure(lambda page: page.outcomes.auc), figure(lambda page: page.outcomes.auc_low),
                     figure(lambda page: page.weight),
                     f"{min(page.weight for page in found):.2f}-{max(page.weight for page in found):.2f}"]
                )  # fmt: skip
                key = f"weight_{desk}_{source}_{100 * wrong:.0f}"
                figures[key] = statistics.median(page.weight for page in found)
    report.table(
        f"weights by share of wrong labels, {count} trajectories, medians of {len(seeds)} seeds",
        ("labels", "agreement", "GOOD right", "BAD right", "AUC", "at least", "weight", "over seeds"), rows,
    )  # fmt: skip
    return figures


def _median(found: Sequence[PageReport], figure: Callable[[PageReport], float | None]) -> str:
    return f"{statistics.median(value for page in found if (value := figure(page)) is not None):.2f}"


def _flat(
    judged: int, cached: int, not_sampled: int, abstained: dict[str, int], tokens: float
) -> Iterable[tuple[str, float]]:  # fmt: skip
    yield from (("judged", judged), ("cached", cached), ("not_sampled", not_sampled), ("tokens", tokens))
    yield from ((f"abstained_{reason}", n) for reason, n in abstained.items())


def main() -> None:
    """Entry point."""
    parser = report.arguments(__doc__.partition("\n\n")[0])
    parser.add_argument("--trajectories", type=int, default=960, help="a round (960)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--concurrency", type=int, action="append", metavar="N", help="judgements at once (8 and 32)")
    parser.add_argument("--only", choices=("throughput", "savings", "weights"), help="one of the three tables")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work:
        if options.only in (None, "throughput"):
            (port,) = free_ports(1)
            place = Path(work) / "throughput"
            place.mkdir()
            with endpoint(port):
                figures |= runtime.run(
                    partial(
                        throughput, count=options.trajectories, rounds=options.rounds,
                        levels=options.concurrency or CONCURRENCY, directory=place, port=port,
                    )
                )  # fmt: skip
        if options.only in (None, "savings"):
            (port,) = free_ports(1)
            place = Path(work) / "savings"
            place.mkdir()
            with endpoint(port, milliseconds=2.0, faulty=5.0):
                figures |= runtime.run(lambda host: savings(host, place, port))
    if options.only in (None, "weights"):
        figures |= anyio.run(weights, 400, SEEDS, backend="trio")
    report.write(options.json, "attribution", figures, SEEDS)


if __name__ == "__main__":
    main()

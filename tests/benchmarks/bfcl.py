"""BFCL-v3 multi-turn through our adapter: ground truth, agreement with the official checker, speed, many at once.

    python -m tests.benchmarks.bfcl --json build/bfcl.json

All 800 tasks of the four categories are replayed with their own ground truth, with no call at all, and spoilt in seven
ways with seeds; bfcl-eval's own `multi_turn_checker` judges the same runs in a process of its own, and agrees if the
verdict and the kind of failure are the same. Speed is tool calls a second in the ground-truth replays, resets and
verdicts included, 16 attempts at a time in two workers, and by
CPU time of all processes beside it, for busy machines. Then a thousand attempts are open at once, and all are played
to their end.
"""

import resource
import time
from pathlib import Path
from random import Random
from typing import Any

import anyio

from adapters.environments.bfcl import BfclEnvironment, BfclEpisode
from adapters.environments.bfcl.catalogue import FAMILIES
from tests.benchmarks import report
from tests.support.bfcl_runs import (
    PERTURBATIONS,
    Given,
    Played,
    Turns,
    agrees,
    benchmark,
    held_back_on_time,
    nothing,
    official,
    play,
    say,
)

AT_A_TIME = 16
AT_ONCE = 1000
WORKERS = 2


async def play_all(environment: BfclEnvironment, runs: list[tuple[str, Turns]]) -> list[Played]:
    """Every run, `AT_A_TIME` at a time."""
    done: list[Any] = [None] * len(runs)
    left = iter(range(len(runs)))

    async def worker() -> None:
        for number in left:
            done[number] = await play(environment, *runs[number])

    async with anyio.create_task_group() as group:
        for _ in range(AT_A_TIME):
            group.start_soon(worker)
    return done


def resident_mib() -> float:
    """Of this process, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def many_at_once(environment: BfclEnvironment, truths: dict[str, Turns]) -> dict[str, float]:
    """Open `AT_ONCE` attempts in fresh workers, play them all, a turn of each at a time."""
    names = list(truths)
    tasks = [names[number % len(names)] for number in range(AT_ONCE)]
    before = resident_mib()
    started = time.monotonic()
    episodes: list[BfclEpisode] = [await environment.reset(environment.task(task)) for task in tasks]
    opened = time.monotonic()
    for turn in range(max(len(truths[task]) for task in tasks)):
        async with anyio.create_task_group() as group:
            for task, episode in zip(tasks, episodes, strict=True):
                if turn < len(truths[task]):
                    group.start_soon(say, episode, truths[task][turn])
    passed = sum([await episode.evaluate() for episode in episodes])
    played = time.monotonic()
    usage, grown = await environment.pool.usage(), resident_mib() - before
    assert sum(worker["worlds"] for worker in usage) == AT_ONCE
    for episode in episodes:
        await episode.aclose()
    assert sum(worker["worlds"] for worker in await environment.pool.usage()) == 0
    return {
        "at_once": AT_ONCE,
        "at_once_passed": passed,
        "at_once_open_seconds": opened - started,
        "at_once_play_seconds": played - opened,
        "at_once_workers_mib": sum(worker["peak_kib"] for worker in usage) / 1024,
        "at_once_daemon_grew_mib": grown,
    }


async def cpu_seconds(environment: BfclEnvironment) -> float:
    """Of this process and of the workers, so far: what a busy machine does not change."""
    return time.process_time() + sum(worker["cpu_seconds"] for worker in await environment.pool.usage())


async def one_category(
    environment: BfclEnvironment, python: Path, given: dict[str, Given], seed: int, spoilt_passed: dict[str, int]
) -> dict[str, float]:
    """The figures of one category; adds to `spoilt_passed`."""
    started, computed = time.monotonic(), await cpu_seconds(environment)
    right = await play_all(environment, [(task, each.turns) for task, each in given.items()])
    seconds, cpu = time.monotonic() - started, await cpu_seconds(environment) - computed
    idle = await play_all(environment, [(task, nothing(each.turns)) for task, each in given.items()])
    runs: list[tuple[str, str, Turns]] = []
    for task, each in given.items():
        episode = await environment.reset(environment.task(task))
        tools = [tool["function"]["name"] for tool in episode.tools]
        await episode.aclose()
        for name, spoil in PERTURBATIONS.items():
            runs.append((name, task, spoil(each.turns, tools, Random(f"{seed} {name} {task}"))))
    spoilt = await play_all(environment, [(task, turns) for _, task, turns in runs])
    for (name, _, _), run in zip(runs, spoilt, strict=True):
        spoilt_passed[name] += int(run.outcome)
    asked = [(task, each.turns) for task, each in given.items()] + [(task, turns) for _, task, turns in runs]
    verdicts = await anyio.to_thread.run_sync(official, python, asked)
    agreed = [agrees(run, verdict) for run, verdict in zip([*right, *spoilt], verdicts, strict=True)]
    return {
        "ground_truth_passed": sum(run.outcome for run in right),
        "noop_passed": sum(run.outcome for run in idle),
        "perturbed": len(spoilt),
        "agreed": sum(agreed[len(right) :]),
        "agreed_on_ground_truth": sum(agreed[: len(right)]),
        "held_back_on_time": sum([await held_back_on_time(environment, task, each) for task, each in given.items()]),
        "calls": sum(run.calls for run in right),
        "seconds": seconds,
        "cpu_seconds": cpu,
    }


async def measure(python: Path, seed: int) -> dict[str, float]:
    """All figures; prints the tables."""
    environment = BfclEnvironment(python, workers=WORKERS)
    try:
        given = benchmark(python, environment)
        found: dict[str, dict[str, float]] = {}
        spoilt_passed = dict.fromkeys(PERTURBATIONS, 0)
        for category in FAMILIES.values():
            print(f"bfcl: {category}", flush=True)
            tasks = {task: each for task, each in given.items() if task.rpartition("_")[0] == category}
            found[category] = await one_category(environment, python, tasks, seed, spoilt_passed)
    finally:
        await environment.aclose()
    print(f"bfcl: {AT_ONCE} attempts at once", flush=True)
    fresh = BfclEnvironment(python, workers=WORKERS)
    try:
        at_once = await many_at_once(fresh, {task: each.turns for task, each in given.items()})
    finally:
        await fresh.aclose()
    _print(found, spoilt_passed, at_once)
    whole = {key: sum(each[key] for each in found.values()) for key in next(iter(found.values()))}
    figures = {key: whole[key] for key in ("ground_truth_passed", "noop_passed", "perturbed", "held_back_on_time")}
    figures["checker_agreement"] = whole["agreed"] / whole["perturbed"]
    figures["steps_per_s"] = whole["calls"] / whole["seconds"]
    figures["steps_per_cpu_s"] = whole["calls"] / whole["cpu_seconds"]
    figures["workers"] = WORKERS
    for category, each in found.items():
        figures |= {f"{category}_{key}": each[key] for key in ("ground_truth_passed", "noop_passed")}
        figures[f"{category}_checker_agreement"] = each["agreed"] / each["perturbed"]
        figures[f"{category}_steps_per_s"] = each["calls"] / each["seconds"]
        figures[f"{category}_steps_per_cpu_s"] = each["calls"] / each["cpu_seconds"]
    figures |= {f"passed_{name.replace(' ', '_')}": count for name, count in spoilt_passed.items()}
    return figures | at_once


def _print(found: dict[str, dict[str, float]], spoilt_passed: dict[str, int], at_once: dict[str, float]) -> None:
    report.table(
        "BFCL-v3 multi-turn through the adapter, 200 tasks each",
        ("category", "truth", "no-op", "judged as official", "held back on time", "calls", "calls/s", "calls/CPU s"),
        [
            (
                category.removeprefix("multi_turn_"), int(each["ground_truth_passed"]), int(each["noop_passed"]),
                f"{int(each['agreed'])} of {int(each['perturbed'])}", int(each["held_back_on_time"]) or "-",
                int(each["calls"]), each["calls"] / each["seconds"], each["calls"] / each["cpu_seconds"],
            )
            for category, each in found.items()
        ],
    )  # fmt: skip
    report.table("spoilt runs that pass, of 800 each", ("how", "passed"), list(spoilt_passed.items()))
    report.table("many at once", ("figure", "value"), list(at_once.items()))


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--python", type=Path, default=Path(".venv-bfcl/bin/python"), help="has bfcl-eval (make bfcl)")
    parser.add_argument("--seed", type=int, default=0, help="of the spoilt runs")
    options = parser.parse_args()
    figures = anyio.run(measure, options.python.absolute(), options.seed)
    report.write(options.json, "bfcl", figures, [options.seed])


if __name__ == "__main__":
    main()

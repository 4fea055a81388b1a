"""BFCL-v3 multi-turn through our adapter: ground truth, agreement with the official checker, speed, many at once.

    python -m tests.benchmarks.bfcl --json build/bfcl.json

All 800 tasks of the four categories are replayed with their own ground truth, with no call at all, and spoilt in seven
ways with seeds; bfcl-eval's own `multi_turn_checker` judges the same runs in a process of its own. Speed is tool calls a
second in the ground-truth replays, resets and verdicts included, 16 attempts at a time in two workers. Then a thousand
attempts are open at once, and all are played to their end.
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
    Played,
    Turns,
    ground_truths,
    nothing,
    official,
    perfect,
    play,
    say,
)

AT_A_TIME = 16
AT_ONCE = 1000
HELD_BACK_SAYS = "I have updated some more functions you can choose from. What about now?"


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


async def held_back_on_time(environment: BfclEnvironment, task: str, turns: Turns, held: dict[int, set[str]]) -> bool:
    """Whether every function that the task holds back is missing before its turn and there from then on."""
    episode = await environment.reset(environment.task(task))
    try:
        for turn in range(len(turns)):
            offered = {tool["function"]["name"] for tool in episode.tools}
            late = {name for at, names in held.items() if at > turn for name in names}
            due = {name for at, names in held.items() if at <= turn for name in names}
            if late & offered or due - offered:
                return False
            seen = await episode.step((), "")
            if turn + 1 in held and [message["content"] for message in seen.messages] != [HELD_BACK_SAYS]:
                return False
        return bool(held)
    finally:
        await episode.aclose()


async def many_at_once(environment: BfclEnvironment, truths: dict[str, Turns]) -> dict[str, float]:
    """Open `AT_ONCE` attempts, play them all, a turn of each at a time."""
    names = list(truths)
    tasks = [names[number % len(names)] for number in range(AT_ONCE)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
    usage = await environment.pool.usage()
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
        "at_once_daemon_grew_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


async def measure(python: Path, seed: int) -> dict[str, float]:
    """All figures; prints the tables."""
    environment = BfclEnvironment(python, workers=2)
    try:
        truths = ground_truths(python, environment)
        held = held_back(python)
        figures: dict[str, float] = dict.fromkeys(
            ("ground_truth_passed", "noop_passed", "perturbed", "agreed", "held_back_on_time", "official_valid"), 0
        )
        calls = seconds = 0.0
        rows: list[list[object]] = []
        spoilt_passed = dict.fromkeys(PERTURBATIONS, 0)
        for category in FAMILIES.values():
            tasks = [task for task in truths if task.rpartition("_")[0] == category]
            report_progress(category)
            started = time.monotonic()
            done = await play_all(environment, [(task, perfect(truths[task], (), Random())) for task in tasks])
            took = time.monotonic() - started
            idle = await play_all(environment, [(task, nothing(truths[task], (), Random())) for task in tasks])
            runs = []
            for name, spoil in PERTURBATIONS.items():
                for task in tasks:
                    tools = [doc["function"]["name"] for doc in environment.tools_of(task)]
                    runs.append((name, task, spoil(truths[task], tools, Random(f"{seed} {name} {task}"))))
            ours = await play_all(environment, [(task, turns) for _, task, turns in runs])
            checked = [(task, truths[task]) for task in tasks] + [(task, turns) for _, task, turns in runs]
            theirs = await anyio.to_thread.run_sync(official, python, checked)
            verdicts = [*done, *ours]
            agree = sum(
                (run.outcome == 1.0) == verdict["valid"] and run.failure == verdict["error_type"]
                for run, verdict in zip(verdicts, theirs, strict=True)
            )
            agree_perturbed = sum(
                (run.outcome == 1.0) == verdict["valid"] and run.failure == verdict["error_type"]
                for run, verdict in zip(ours, theirs[len(done) :], strict=True)
            )
            for (name, _, _), run in zip(runs, ours, strict=True):
                spoilt_passed[name] += int(run.outcome)
            on_time = sum([await held_back_on_time(environment, t, truths[t], held.get(t, {})) for t in tasks])
            passed, idle_passed = sum(run.outcome for run in done), sum(run.outcome for run in idle)
            made = sum(run.calls for run in done)
            calls, seconds = calls + made, seconds + took
            figures["ground_truth_passed"] += passed
            figures["noop_passed"] += idle_passed
            figures["perturbed"] += len(ours)
            figures["agreed"] += agree_perturbed
            figures["held_back_on_time"] += on_time
            figures["official_valid"] += sum(verdict["valid"] for verdict in theirs[len(done) :])
            rows.append([
                category, int(passed), int(idle_passed), f"{agree}/{len(verdicts)}", on_time, made, made / took,
            ])  # fmt: skip
            for key, value in (("ground_truth", passed), ("noop", idle_passed), ("steps_per_s", made / took)):
                figures[f"{category}_{key}"] = value
        figures["checker_agreement"] = figures["agreed"] / figures["perturbed"]
        figures["steps_per_s"] = calls / seconds
        report_progress(f"{AT_ONCE} attempts at once")
        figures |= await many_at_once(environment, truths)
        report.table(
            "BFCL-v3 multi-turn through the adapter (200 tasks each)",
            ("category", "ground truth", "no-op", "verdicts as official", "held back on time", "calls", "calls/s"),
            rows,
        )
        report.table("spoilt runs that pass (of 800 each)", ("how", "passed"), list(spoilt_passed.items()))
        keys = [key for key in figures if key.startswith("at_once")]
        report.table("many at once", ("figure", "value"), [[key, round(figures[key], 2)] for key in keys])
        return figures
    finally:
        await environment.aclose()


def held_back(python: Path) -> dict[str, dict[int, set[str]]]:
    """Turn to names, by task, read from the data itself rather than through our worker."""
    from tests.support.bfcl_runs import missed_functions

    return missed_functions(python)


def report_progress(what: str) -> None:
    print(f"bfcl: {what}", flush=True)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--python", type=Path, default=Path(".venv-bfcl/bin/python"), help="has bfcl-eval (make bfcl)")
    parser.add_argument("--seed", type=int, default=0, help="of the spoilt runs")
    options = parser.parse_args()
    figures = anyio.run(measure, options.python.absolute(), options.seed)
    report.write(options.json, "bfcl", figures, [options.seed])


if __name__ == "__main__":
    main()

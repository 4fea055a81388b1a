"""A tool gets a name that is made at run time: does the policy come back, with lessons that the system draws itself?

    python -m tests.benchmarks.drift --world travel|service [--seeds 5] [--names 10] [--learn 1] [--updates 24]
                                     [--no-experience] [--json FILE]

A seed's policy learns on the undisturbed desk (`--warm` updates, kept under build/drift). Then, for each name by
itself, the tools of `drift_world.ROLES` are renamed, nobody is told, and every link of the way back is looked at:

    drawn       a lesson that can be given speaks of the new name
    given       share of the held-out goals of a renamed tool for which it is found
    named       share of the guided attempts at these in which the new name is called
    guided      success with the lessons, on the same held-out tasks as before and after without

The first `--learn` names of a seed are learned from: groups of eight on training tasks, half of each guided, rules as
judge, the demo's settings of the learner. `--no-experience`: no lesson is drawn or given. Recovered is a policy whose
unguided success is within ten points of what it was before.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog
import torch

from actors.messages import BatchItem, Experience, Task
from actors.ports.environments import Environment
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.drift_world import GROUP, GROUPS, Attempt, Policy, Teacher, attributed, renamed, write

ROOT = Path(__file__).parents[2] / "build" / "drift"
TASKS_A_SEED = 1_000_000
UNDISTURBED = 999
"""Number of the run before any drift: others have lower ones."""
COLD = 128
"""Unguided runs that the experiencer has seen before the drift: half of its window."""
NEAR = 0.10
"""Of what it was before: recovered."""


class Link(msgspec.Struct, kw_only=True):
    """What became of one drift."""

    seed: int
    names: list[str]
    drawn: float = 0.0
    """Share of the new names that a lesson speaks of which can be given."""
    given: float = 0.0
    named: float = 0.0
    before: float = 0.0
    low: float = 0.0
    """Right after, without lessons."""
    guided: float = 0.0
    lessons: list[str] = []
    after: list[float] = []
    """Unguided success after each measured update; empty where nothing was learned."""
    updates: int = -1
    """Updates until it had recovered, -1: it has not."""
    kept: list[str] = []
    """Lessons in the end, with state and reason."""
    seconds: float = 0.0
    """CPU seconds."""


class Story:
    """One policy and one drift."""

    def __init__(self, options: argparse.Namespace, seed: int, number: int, work: Path) -> None:
        self._options, self._seed, self._number, self._work = options, seed, number, work
        world = options.world
        self._world, self._place = world, WORLDS[world]
        self._file = work / "desk.json"
        self._desk: Environment = self._place.environment(self._file)
        self._policy = Policy(world, trained(world, seed, options.warm), 1000 * seed + number, work)
        self._teacher: Teacher | None = None
        self._rename = renamed(world, seed, number)
        self._played = 0

    async def run(self, updates: int) -> Link:
        """The whole of it; `updates` 0: nothing is learned."""
        began = time.process_time()
        link = Link(seed=self._seed, names=list(self._rename.values()))
        if self._options.experience:
            self._teacher = Teacher(self._policy, self._desk, self._work, self._seed)
            await self._teacher.start()
            cold = await self._groups(COLD // GROUP, 0.0)
            await self._teacher.see([item.attributed.trajectory for item in cold])
        link.before = self._unguided()
        write(self._world, self._file, self._rename)
        if self._teacher is not None:
            await self._teacher.drifted(list(self._rename))
        link.low = self._unguided()
        await self._links(link)
        for update in range(1, updates + 1):
            await self._update()
            if update % self._options.every == 0 or update == updates:
                link.after.append(self._unguided())
                if link.updates < 0 and link.after[-1] >= link.before - NEAR:
                    link.updates = update
        if self._teacher is not None:
            link.kept = [f"{one.content} ({one.state}: {one.reason})" for one in await self._teacher.pool()]
            await self._teacher.close()
        link.seconds = time.process_time() - began
        return link

    def _unguided(self) -> float:
        tasks = self._held_out()
        attempts = [Attempt(self._desk, task, self._place.max_steps) for task in tasks]
        self._policy.play(attempts)
        return statistics.fmean(attempt.solved for attempt in attempts)

    def _held_out(self) -> list[Task]:
        first = TASKS_A_SEED * (self._seed + 1)
        return [
            self._desk.sample(first + number, "heldout", self._place.families) for number in range(self._options.tasks)
        ]

    async def _links(self, link: Link) -> None:
        if self._teacher is None:
            return
        pool = [one for one in await self._teacher.pool() if one.state in ("active", "candidate")]
        link.lessons = [f"{one.when_to_use}: {one.content} ({one.state}, {one.origin})" for one in pool]
        link.drawn = statistics.fmean(any(name in one.content for one in pool) for name in link.names)
        lessons = {task.id: await self._lessons(task) for task in self._held_out()}
        attempts = [Attempt(self._desk, task, self._place.max_steps, lessons[task.id]) for task in self._held_out()]
        self._policy.play(attempts)
        link.guided = statistics.fmean(attempt.solved for attempt in attempts)
        told = [(attempt, wanted) for attempt in attempts if (wanted := self._wanted(attempt))]
        having = [
            (attempt, wanted)
            for attempt, wanted in told
            if any(name in lesson.content for name in wanted for lesson in attempt.lessons)
        ]
        link.given = len(having) / len(told) if told else 0.0
        link.named = statistics.fmean(bool(attempt.called & wanted) for attempt, wanted in having) if having else 0.0

    def _wanted(self, attempt: Attempt) -> set[str]:
        """New names among the tools of the attempt."""
        return set(self._rename.values()) & attempt.tools

    async def _lessons(self, task: Task) -> Sequence[Experience]:
        if self._teacher is None:
            return ()
        return await self._teacher.lessons(task.goal, Attempt(self._desk, task, self._place.max_steps).tools)

    async def _update(self) -> None:
        items = await self._groups(GROUPS, 0.5)
        self._policy.learn(items)
        if self._teacher is not None:
            await self._teacher.see([item.attributed.trajectory for item in items])

    async def _groups(self, groups: int, share: float) -> list[BatchItem]:
        """Attempts at `groups` training tasks, a share of each group with the lessons that fit."""
        attempts: list[Attempt] = []
        for _ in range(groups):
            task = self._desk.sample(TASKS_A_SEED * self._seed + self._played, "train", self._place.families)
            lessons = await self._lessons(task) if share else ()
            attempts += [
                Attempt(
                    self._desk, task, self._place.max_steps, lessons if member < share * GROUP else (),
                    group=f"g{self._played}",
                )
                for member in range(GROUP)
            ]  # fmt: skip
            self._played += 1
        rows = self._policy.play(attempts)
        now = self._teacher.now if self._teacher is not None else 0.0
        return [
            BatchItem(
                attributed=attributed(
                    attempt.trajectory(
                        f"{self._played}-{number}", row, self._policy.player, self._policy.version, now
                    )
                )
            )
            for number, (attempt, row) in enumerate(zip(attempts, rows, strict=True))
        ]  # fmt: skip

    async def warm(self, updates: int, out: Path) -> None:
        """Learn on the undisturbed desk and write the weights."""
        for _ in range(updates):
            await self._update()
        self._policy.save(out)


def trained(world: str, seed: int, warm: int) -> Path:
    """Directory of a seed's policy before the drift, made if it is not there."""
    start = WORLDS[world].warm_start
    if not warm:
        return start
    digest = hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest()[:8]
    directory = ROOT / f"{world}-{digest}-{seed}-{warm}"
    if not (directory / "model.safetensors").exists():
        options = argparse.Namespace(world=world, warm=0, experience=False)
        with tempfile.TemporaryDirectory(dir=_root()) as work:
            aside = Path(work) / "aside"
            shutil.copytree(start, aside)
            asyncio.run(Story(options, seed, UNDISTURBED, Path(work)).warm(warm, aside))
            os.replace(aside, directory)
    return directory


def _root() -> Path:
    ROOT.mkdir(parents=True, exist_ok=True)
    return ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--world", choices=sorted(WORLDS), required=True)
    parser.add_argument("--seeds", type=int, default=5, help="policies (5)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--names", type=int, default=10, help="drifts of each, every one by itself (10)")
    parser.add_argument("--learn", type=int, default=1, help="of these, that are learned from (1)")
    parser.add_argument("--updates", type=int, default=24, help="after the drift (24)")
    parser.add_argument("--warm", type=int, default=12, help="updates before it (12)")
    parser.add_argument("--every", type=int, default=4, help="updates from one measurement to the next (4)")
    parser.add_argument("--tasks", type=int, default=96, help="held-out tasks a measurement (96)")
    parser.add_argument("--no-experience", dest="experience", action="store_false", help="draw and give no lessons")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    torch.set_num_threads(1)
    seeds = range(options.first, options.first + options.seeds)
    links: list[Link] = []
    for seed in seeds:
        for number in range(options.names if options.experience else options.learn):
            with tempfile.TemporaryDirectory() as work:
                story = Story(options, seed, number, Path(work))
                links.append(asyncio.run(story.run(options.updates if number < options.learn else 0)))
            print(msgspec.json.encode(links[-1]).decode(), flush=True)
    figures = figures_of(links)
    report.table(
        f"Drift to made names, {options.world}", ["", "mean", "least", "most"],
        [[name, *(f"{value:.2f}" for value in spread)] for name, spread in spreads(links).items()],
    )  # fmt: skip
    name = f"drift_{options.world}" + ("" if options.experience else "_no_experience")
    report.write(options.json, name, figures, list(seeds))
    return 0


def spreads(links: Sequence[Link]) -> dict[str, tuple[float, float, float]]:
    """Mean, least and most of each figure."""
    learned = [link for link in links if link.after]
    columns = {
        **{name: [getattr(link, name) for link in links] for name in ("before", "low", "drawn", "given", "named")},
        "guided": [link.guided for link in links],
        "in the end": [link.after[-1] for link in learned],
        "updates to recover": [float(link.updates) for link in learned if link.updates > 0],
    }
    return {name: (statistics.fmean(values), min(values), max(values)) for name, values in columns.items() if values}


def figures_of(links: Sequence[Link]) -> dict[str, float]:
    """What is written."""
    learned = [link for link in links if link.after]
    spread = {
        f"{name.replace(' ', '_')}_{what}": value
        for name, values in spreads(links).items()
        for what, value in zip(("mean", "low", "high"), values, strict=True)
    }
    return {
        **spread, "drifts": len(links), "learned": len(learned), "recovered": sum(link.updates > 0 for link in learned),
        "cpu_seconds": sum(link.seconds for link in links),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

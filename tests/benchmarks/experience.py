"""What lessons are worth on the travel desk, and how fast bad ones go.

    python -m tests.benchmarks.experience [--seeds 3] [--json FILE]

Guided against unguided: three policies before training on the base desk, and the same three, trained on it, after
`book` became `buy`. The lessons are the experiencer's own, drawn from unguided rollouts on training tasks and, after
the drift, from a round of probing with the policy itself; success is on held-out tasks, each attempted with and
without them.

Bad lessons: planted into the books as they ship and tried by the trained policies, until they are retired; and drawn
lessons beside them.

The checkpoints are those of the ablation (`python -m tests.benchmarks.ablation --prepare` makes them).
"""

import asyncio
import itertools
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import structlog

from actors.experience.experiencer import Experiencer
from actors.experience.lesson_ab_test import MIN_GAIN
from actors.experience.pool import LessonPool
from actors.experience.probing import Prober
from actors.experience.reviewing import Reviewing
from actors.messages import Attributed, Attribution, Directive, Experience, Task, ToolCall, Trajectory
from actors.messages.experience import lessons_text
from actors.ports.environments import Episode
from actors.statistics.intervals import Pairs, newcombe_paired
from actors.store import Store
from actors.system.actor import Received
from actors.tool_results.tool_calls import position
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.drift import BASE, Variant
from tests.benchmarks import report
from tests.benchmarks.ablation import plan
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.player import Player
from tests.warmstart import chat

T = TypeVar("T")
TURNS = 10
"""Of a probe's episode at most."""
FAMILIES = "ABC"
RENAME = Drift(rename={"book": "buy"})
COLD, HELD_OUT, GROUP = 128, 256, 8
"""Unguided rollouts that lessons are drawn from, held-out tasks, attempts of a group (half of them guided)."""
MOST_GROUPS = 60
BAD = (
    ("book", "book:{}"),
    ("book", "search then book:{}"),
    ("cancel", "before_cancel:check_policy then cancel:{}"),
    ("book", "before_book:{} then book:book"),
    ("cancel", "before_cancel:{} then cancel:cancel"),
    ("book", "search then book:weather"),
    ("cancel", "cancel:cancel"),
)
"""A wrong name, a precondition that does not exist ({} is a made-up tool), a wrong tool, a precondition left out."""
MADE_UP = ("acquire", "reserve_all", "drop", "settle", "confirm", "obtain", "approve", "sync_desk")


def shown(task: Task, variant: Variant, lessons: Sequence[Experience] = ()) -> Attempt:
    """An attempt that sees `lessons` in its prompt, or none."""
    return Attempt(task, variant, lessons_text(lessons), tuple(lesson.id for lesson in lessons))


class Policy:
    def __init__(self, directory: Path, seed: int) -> None:
        self._player, self._noise = Player(directory), random.Random(seed)

    def play(self, attempts: Sequence[Attempt]) -> list[bool]:
        self._player.play(attempts, self._noise)
        return [attempt.solved for attempt in attempts]

    async def probe(self, episode: Episode, seed: int) -> None:
        """A `Player` for probes: the policy itself plays the edited episode."""
        self._player.play([Probed(episode)], self._noise)


class Probed:
    """A probe's episode as one of the player."""

    def __init__(self, episode: Episode) -> None:
        self._episode, self._left = episode, TURNS
        system = episode.messages[0]["content"] if len(episode.messages) > 1 else chat.SYSTEM
        self.opening = chat.opening(episode.messages[-1]["content"], episode.tools, "", system)

    def act(self, text: str) -> str | None:
        calls = [ToolCall(call.name, call.arguments, f"call-{at}") for at, call in enumerate(chat.parse_all(text))]
        seen = _at_once(self._episode.step(calls, text))
        self._left -= 1
        if seen.done or not self._left:
            return None
        if not seen.messages:
            return chat.continuation(seen.text)
        return chat.continuation(*(one["content"] for one in seen.messages), role=seen.messages[0]["role"])


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the desk waited for something")


def fitting(goal: str, lessons: Sequence[Experience], most: int = 2) -> list[Experience]:
    """The lessons whose word the goal names, in its order."""
    named = [lesson for lesson in lessons if position(goal, lesson.when_to_use) is not None]
    return sorted(named, key=lambda lesson: position(goal, lesson.when_to_use) or 0)[:most]


async def drawn(policy: Policy, drift: Drift, work: Path) -> list[Experience]:
    """The lessons that the experiencer has after a cold start, and a drift if there is one."""
    work.mkdir(parents=True)
    desk = work / "desk.json"
    store, environment = Store(f"sqlite:///{work}/evolved.db", clock=time.time), TravelDesk(desk)
    await store.open()
    prober = Prober(environment=environment, player=policy.probe, clock=time.time, families=FAMILIES)
    actor = Experiencer(store=store, prober=prober, clock=time.time)
    await actor.start()
    attempts = [shown(environment.sample(i, "train", FAMILIES), BASE) for i in range(COLD)]
    policy.play(attempts)
    runs = [attempt.trajectory(i, 1, at=time.time()) for i, attempt in enumerate(attempts)]
    credit = Attribution(labels=(), judge="none", rubric="")
    result = await actor.handle(
        [Received(run.id, "", Attributed(id=run.id, trajectory=run, attribution=credit)) for run in runs]
    )
    await store.save(list(result.records))
    if drift.rename:
        drift.write(desk)
        directive = Directive(
            id="d", kind="drift", reason="", origin="benchmark", details={"missing": ",".join(drift.rename)}
        )
        result = await actor.handle([Received("d", "", directive)])
        await store.save(list(result.records))
    lessons = [lesson for lesson in await store.experiences() if lesson.state in ("active", "candidate")]
    await store.aclose()
    return lessons


def compare(policy: Policy, variant: Variant, lessons: Sequence[Experience], seed: int) -> Pairs:
    """Guided and unguided attempts at the same held-out tasks."""
    desk = TravelDesk()
    tasks = [desk.sample(1_000_000 * (seed + 1) + i, "heldout", FAMILIES) for i in range(HELD_OUT)]
    guided = policy.play([shown(task, variant, fitting(task.goal, lessons)) for task in tasks])
    return Pairs.count(guided, policy.play([shown(task, variant) for task in tasks]))


class Books:
    """The books as they ship, with one lesson in them."""

    def __init__(self, lesson: Experience) -> None:
        self.now, self._pool = 0.0, LessonPool(10)
        self._pool.load([lesson])
        self._reviewing = Reviewing(pool=self._pool, memory=1024, between=0.0, clock=lambda: self.now)
        self.lesson, self.uses = lesson, 0

    def add(self, runs: Sequence[Trajectory]) -> None:
        """A group of rollouts; then the review."""
        self.now += 1.0
        for run in runs:
            self.uses += bool(run.experience_ids)
            self._reviewing.remember(run)
        self._reviewing.review()
        # Counting goes on from the first use: what `updated` becomes on a change of state is the actor's affair.
        self._pool.revised(self.now)
        self.lesson = self._pool.get(self.lesson.id) or self.lesson


def planted(policy: Policy, variant: Variant, lesson: Experience, seed: int) -> tuple[int | None, str, float]:
    """Rollouts that saw `lesson` until it was retired (None: it was not), the last state's reason, and the gain."""
    desk, books, number = TravelDesk(), Books(lesson), 0
    rng, outcomes = random.Random(seed), {True: list[float](), False: list[float]()}
    named = (desk.sample(rng.randrange(10**6), "train", FAMILIES) for _ in itertools.count())
    tasks = (task for task in named if position(task.goal, lesson.when_to_use) is not None)
    while books.lesson.state != "retired" and books.uses < MOST_GROUPS * GROUP // 2:
        # Four groups are played together for speed; the books see group after group.
        groups = [
            [shown(task, variant, [lesson] if i < GROUP // 2 else ()) for i in range(GROUP)]
            for task in itertools.islice(tasks, 4)
        ]
        policy.play([attempt for group in groups for attempt in group])
        for group in groups:
            runs = [attempt.trajectory(number + i, 1, at=books.now) for i, attempt in enumerate(group)]
            number += GROUP
            for run in runs:
                outcomes[bool(run.experience_ids)].append(run.outcome or 0.0)
            books.add(runs)
            if books.lesson.state == "retired":
                break
    gain = statistics.fmean(outcomes[True]) - statistics.fmean(outcomes[False])
    return (books.uses if books.lesson.state == "retired" else None), books.lesson.reason, gain


def bad_lessons(seed: int) -> list[Experience]:
    """One of each kind, with names drawn by `seed`."""
    rng = random.Random(f"bad-{seed}")
    return [
        Experience(
            id=f"bad-{seed}-{i}", when_to_use=when, content=content.format(rng.choice(MADE_UP)), revision=0
        )
        for i, (when, content) in enumerate(BAD)
    ]  # fmt: skip


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3, help="policies, 1 to 3 (default 3)")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    seeds = range(options.seeds)
    figures, found = _lessons(seeds)
    report.write(options.json, "experience", figures | _planted(seeds, found), seeds)


Drawn = dict[tuple[str, int], list[Experience]]
"""Lessons by situation and policy."""


def _lessons(seeds: Sequence[int]) -> tuple[dict[str, float], Drawn]:
    """Guided against unguided, and the lessons that were drawn."""
    figures: dict[str, float] = {}
    found: Drawn = {}
    with tempfile.TemporaryDirectory() as work:
        for name, checkpoint, drift in (
            ("before training", plan.warm_start, Drift()), ("after a rename", plan.trained, RENAME),
        ):  # fmt: skip
            total = [0, 0, 0, 0]
            for seed in seeds:
                policy = Policy(checkpoint(seed), seed)
                lessons = asyncio.run(drawn(policy, drift, Path(work) / f"{checkpoint.__name__}-{seed}"))
                found[name, seed] = lessons
                pairs = compare(policy, Variant.of(drift), lessons, seed)
                total = [a + b for a, b in zip(total, msgspec.structs.astuple(pairs), strict=True)]
                _say(f"{name}, policy {seed}", pairs)
                print("  " + "; ".join(f"{one.content} ({one.state})" for one in lessons), flush=True)
            _say(f"{name}, all", Pairs(*total))
            difference = newcombe_paired(Pairs(*total))
            for what, value in (("gain", difference.estimate), ("low", difference.low), ("high", difference.high)):
                figures[f"{name.replace(' ', '_')}_{what}"] = value
    return figures, found


def _say(name: str, pairs: Pairs) -> None:
    gain, (without, guided) = newcombe_paired(pairs), (pairs.second / pairs.total, pairs.first / pairs.total)
    print(
        f"{name}: {without:.0%} unguided, {guided:.0%} guided, {gain.estimate:+.0%} [{gain.low:+.0%}, {gain.high:+.0%}]"
    )


def _planted(seeds: Sequence[int], found: Drawn) -> dict[str, float]:
    """Bad lessons and drawn ones on trial, by trained policies on the base desk and after the rename."""
    uses: list[int] = []
    left = wrongly = good = 0

    def tried(what: str, policy: Policy, drift: Drift, lesson: Experience, seed: int) -> tuple[int | None, float]:
        went, reason, gain = planted(policy, Variant.of(drift), lesson, seed)
        print(f"{what}, policy {seed}: {lesson.content} | {went or 'stays'} | {gain:+.2f} | {reason}", flush=True)
        return went, gain

    for seed in seeds:
        trained = Policy(plan.trained(seed), seed + 100)
        for drift in (Drift(), RENAME):
            for lesson in bad_lessons(10 * seed + len(drift.rename)):
                went, _ = tried("bad", trained, drift, lesson, seed)
                left += went is None
                uses += [went] if went is not None else []
        for name, policy, drift in (
            ("after a rename", trained, RENAME),
            ("before training", Policy(plan.warm_start(seed), seed + 200), Drift()),
        ):
            for lesson in found[name, seed]:
                fresh = msgspec.structs.replace(lesson, state="candidate", updated=0.0)
                went, gain = tried(f"drawn, {name}", policy, drift, fresh, seed + 1)
                good += gain >= MIN_GAIN
                wrongly += went is not None and gain >= MIN_GAIN
    median, p95 = np.quantile(uses, (0.5, 0.95)) if uses else (float("nan"), float("nan"))
    print(f"bad lessons: {len(uses)} of {len(uses) + left} removed, uses median {median:.0f}, p95 {p95:.0f}; "
          f"lessons with a gain: {wrongly} of {good} retired", flush=True)  # fmt: skip
    return {
        "bad_removed": len(uses), "bad_planted": len(uses) + left, "bad_uses_median": median, "bad_uses_p95": p95,
        "good_retired": wrongly, "good_tried": good,
    }  # fmt: skip


if __name__ == "__main__":
    main()

"""Do the weights know it without the hint? Success with and without each lesson, by weight version, from a run's store.

    evolved demo --drift --seed 0 --dir /tmp/drift
    python -m tests.benchmarks.closed_book /tmp/drift/state/evolved.db [--json FILE]

Sandbox rollouts whose goal the lesson is about, by the oldest weights that sampled in them, several versions to a row:
guided ones had the lesson in their prompt, unguided ones had none. What became of the lesson stands below: this is what
the closed-book probe decides by (docs/measured.md), looked at from outside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio

from actors.experience.lesson_ab_test import LessonTrial, about, read_trial
from actors.messages import Experience
from actors.statistics.intervals import wilson
from actors.store import Store
from tests.benchmarks import report

ENOUGH = 30
"""Guided rollouts after which the next version begins another row."""
MOST = 100_000


class Curve:
    """Guided and unguided success of one lesson, by version."""

    def __init__(self, lesson: Experience, trials: Sequence[LessonTrial]) -> None:
        self.guided: Counter[int] = Counter()
        self.guided_won: Counter[int] = Counter()
        self.unguided: Counter[int] = Counter()
        self.unguided_won: Counter[int] = Counter()
        for trial in trials:
            if trial.version < 0 or not about(lesson, trial.goal):
                continue
            if lesson.id in trial.lessons:
                self.guided[trial.version] += 1
                self.guided_won[trial.version] += trial.succeeded
            elif not trial.lessons:
                self.unguided[trial.version] += 1
                self.unguided_won[trial.version] += trial.succeeded

    def rows(self) -> list[tuple[str, str, str]]:
        """Versions, guided and unguided, from the first version that saw the lesson to the last."""
        sides = ((self.guided, self.guided_won), (self.unguided, self.unguided_won))
        rows: list[tuple[str, str, str]] = []
        part: list[int] = []
        for version in sorted(self.guided):
            part.append(version)
            # Versions that nobody was guided under lie between the lesson's lives.
            if sum(self.guided[v] for v in part) >= ENOUGH or version + 1 not in self.guided:
                name = f"v{part[0]}" if len(part) == 1 else f"v{part[0]} to v{part[-1]}"
                rows.append((name, *(share(tried, won, part) for tried, won in sides)))
                part = []
        return rows


def share(tried: Mapping[int, int], won: Mapping[int, int], part: Sequence[int]) -> str:
    """`27 of 28: 96 % [82, 99]`."""
    n, k = sum(tried[v] for v in part), sum(won[v] for v in part)
    if not n:
        return ""
    low, high = wilson(k, n)
    return f"{k} of {n}: {k / n:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


async def read(database: Path) -> tuple[list[list[Experience]], list[LessonTrial]]:
    """Lessons with their revisions, newest first, and trials."""
    store = Store(f"sqlite:///{database}", clock=lambda: 0.0)
    await store.open()
    try:
        lessons = [await store.revisions_of(lesson.id) for lesson in await store.experiences()]
        found = await store.recent_attributed(source="sandbox", limit=MOST)
    finally:
        await store.aclose()
    trials = [read_trial(item.trajectory) for item in found]
    return lessons, [trial for trial in trials if trial is not None]


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("database", type=Path, help="a run's SQLite file")
    options = parser.parse_args()
    if not options.database.is_file():
        parser.error(f"{options.database} is not there")
    lessons, trials = anyio.run(partial(read, options.database))
    figures: dict[str, float] = {"rollouts": len(trials), "lessons": len(lessons)}
    for revisions in lessons:
        lesson = revisions[0]
        curve = Curve(lesson, trials)
        rows = curve.rows()
        if not rows:
            continue
        report.table(lesson.content, ("weights", "with the lesson", "without"), rows)
        print("; ".join(f"{one.state}{': ' + one.reason if one.reason else ''}" for one in reversed(revisions)), "\n")
        for side, tried, won in (
            ("guided", curve.guided, curve.guided_won), ("unguided", curve.unguided, curve.unguided_won)
        ):  # fmt: skip
            figures |= {f"{lesson.id[:8]}_{side}_v{v}": won[v] / tried[v] for v in sorted(tried)}
    report.write(options.json, "closed_book", figures, [])


if __name__ == "__main__":
    main()

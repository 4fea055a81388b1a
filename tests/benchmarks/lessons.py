"""What contrast draws, of worlds that nobody prepared for and of the service desk, and how often it errs.

    python -m tests.benchmarks.lessons [--seeds 40] [--json FILE]

The invented worlds (`tests/support/invented_worlds.py`): in how many drawings the truth was drawn, by the noise and by
the runs on each side; and in how many anything was, where results and outcomes have nothing to do with what was done.

The service desk: its demonstrator, who errs as the warm start does, plays for the three agents in turn; told are the
lessons of each agent after so many runs of all, once with every outcome and once with one in twenty.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence

from actors.experience.lessons import ContrastSettings, contrast
from actors.kinds.agents import by_agent
from actors.messages import Step, Trajectory
from tests.benchmarks import report
from tests.support.invented_worlds import WORLDS, traffic, without_truth
from tests.warmstart.service_demonstrations import Demonstrator

NOISE = (0.0, 0.05, 0.1, 0.2)
SIDES = (12, 24, 40)
RUNS = (48, 96, 192, 384, 768)
WINDOW = 256
"""Runs that are contrasted with each other: the experiencer's default."""


def desk(seed: int, runs: int, told: float) -> list[Trajectory]:
    """Runs of the service desk, `told` of them with an outcome."""
    rng = random.Random(f"desk-{seed}")
    demonstrator = Demonstrator(rng)
    made: list[Trajectory] = []
    for number in range(runs):
        shown = demonstrator.demonstrate(hinted=False)
        steps = tuple(
            Step(
                exchange_id=f"e{number}-{at}", text=text, tool_calls=calls,
                observation="\n".join(str(message["content"]) for message in after),
            )
            for at, (calls, text, after) in enumerate(shown.turns)
        )  # fmt: skip
        made.append(
            Trajectory(
                id=f"run-{seed}-{number}", goal=shown.goal, tools=json.dumps(shown.tools).encode(), steps=steps,
                outcome=float(shown.solved) if rng.random() < told else None, started=float(number),
                ended=float(number) + 0.5,
            )
        )  # fmt: skip
    return made


def drawn(runs: list[Trajectory]) -> list[str]:
    """The lessons of each agent."""
    found = (contrast(group, ContrastSettings()) for group in by_agent(runs[-WINDOW:]))
    return sorted(one.practice.content for lessons in found for one in lessons)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments("What contrast draws, and how often it errs.")
    parser.add_argument("--seeds", type=int, default=40, help="drawings of each world (40)")
    options = parser.parse_args(arguments)
    settings, seeds = ContrastSettings(), range(options.seeds)
    figures: dict[str, float] = {}
    for told in (1.0, 0.05):
        for runs in RUNS:
            found = Counter(lesson for seed in range(4) for lesson in drawn(desk(seed, runs, told)))
            print(
                f"desk, {runs} runs, {told:.0%} with an outcome, in so many of four seeds:", dict(found.most_common())
            )
    for side in SIDES:
        for noise in NOISE:
            rows = {
                world.name: sum(
                    any(world.truth.told(one.practice) for one in contrast(runs, settings))
                    for runs in (traffic(world, seed, a_side=side, noise=noise) for seed in seeds)
                )
                for world in WORLDS
            }
            figures[f"truth_{side}_{noise}"] = sum(rows.values()) / (len(rows) * len(seeds))
            print(f"{side:3} a side, noise {noise:4}: {figures[f'truth_{side}_{noise}']:.1%}", rows, flush=True)
        false = [contrast(without_truth(world, seed, a_side=side), settings) for world in WORLDS for seed in seeds]
        figures[f"false_{side}"] = sum(map(bool, false)) / len(false)
        print(f"{side:3} a side, no truth: {sum(map(bool, false))} of {len(false)} drawings with a lesson", flush=True)
    report.write(options.json, "lessons", figures, list(seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())

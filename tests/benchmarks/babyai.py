"""BabyAI through the Gymnasium bridge: its bot and random actions, on four levels.

python -m tests.benchmarks.babyai [--tasks 40] [--json FILE]
"""

import time
from random import Random

import anyio

from adapters.environments.gymnasium import BABYAI, GymnasiumEnvironment
from tests.benchmarks import report
from tests.support.babyai import at_random, oracle


async def measure(level: str, tasks: int) -> dict[str, float]:
    """Solved of `tasks` held-out tasks of `level`, by the bot and at random, with the turns of each attempt and steps
    a second of the random player through the bridge."""
    environment, rng = GymnasiumEnvironment([level]), Random(level)
    wanted = [environment.sample(seed, "heldout", None) for seed in range(tasks)]
    by_bot = [await oracle(environment, task) for task in wanted]
    began = time.perf_counter()
    by_chance = [await at_random(environment, task, rng) for task in wanted]
    seconds = time.perf_counter() - began
    return {
        "oracle": sum(outcome for outcome, _ in by_bot),
        "random": sum(outcome for outcome, _ in by_chance),
        "oracle_turns": sum(turns for _, turns in by_bot) / tasks,
        "random_turns": sum(turns for _, turns in by_chance) / tasks,
        "steps_per_s": sum(turns for _, turns in by_chance) / seconds,
    }


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--tasks", type=int, default=40, help="held-out tasks a level (40)")
    arguments = parser.parse_args()
    rows, figures = list[tuple[object, ...]](), dict[str, float]()
    for level in BABYAI:
        name = level.partition(":")[2]
        found = anyio.run(measure, level, arguments.tasks)
        figures |= {f"{name}/{key}": value for key, value in found.items()}
        solved = [f"{found[key]:.0f} of {arguments.tasks}" for key in ("oracle", "random")]
        rows.append((name, *solved, found["oracle_turns"], found["random_turns"], found["steps_per_s"]))
    columns = ("level", "bot", "random", "bot's turns", "random's turns", "random steps/s")
    report.table("BabyAI through the bridge, 64 turns at most", columns, rows)
    report.write(arguments.json, "babyai", figures, range(arguments.tasks))


if __name__ == "__main__":
    main()

"""`evolved eval` on the command line: how well does an engine do on held-out tasks?"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from daemon.cli.options import json_option
from daemon.errors import CommandFailed

if TYPE_CHECKING:
    from actors.statistics.intervals import Interval
    from daemon.cli.evaluation import Result

EVAL_HELP = """\
Attempt each of N held-out tasks n times with the weights that an engine serves, and print

  avg@n   the share of attempts that solved their task, the mean over tasks: what one attempt can count on
  best@n  the share of tasks that at least one of the n attempts solved: what is within reach

with 95 % intervals, for all tasks and for each family of goals. The engine serves its agents meanwhile. Attempts are
played as the rollout plays: sandbox.harness holds here too.

examples:
  evolved eval --env travel --n 8
  evolved eval --env travel --n 8 --engine http://127.0.0.1:8001 --tasks 128 --json
  evolved eval --env travel --n 1 --temperature 0            greedy: one attempt says it all

Exit status: 0 measured, 2 no such environment or family, the engine is away, or too many episodes broke down.
"""
_PROGRESS_SECONDS = 2.0


def add_eval(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("eval", run_eval, "Measure held-out success of an engine: avg@n and best@n, per family.")
    command.description, command.formatter_class = EVAL_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("--env", required=True, metavar="NAME", help="environment adapter, such as travel")
    command.add_argument("--n", type=int, default=8, help="attempts at each task (8)")
    command.add_argument("--tasks", type=int, default=64, metavar="N", help="held-out tasks (64)")
    command.add_argument("--engine", metavar="URL", help="engine to measure, without /v1 (engines.url)")
    command.add_argument("--families", default="", metavar="LETTERS", help="kinds of task (the environment's mix)")
    command.add_argument("--first-task", type=int, default=0, metavar="NUMBER", help="number of the first task (0)")
    command.add_argument("--seed", type=int, default=0, help="of the sampling (0)")
    command.add_argument("--temperature", type=float, default=1.0, help="of the sampling (1)")
    command.add_argument("--max-steps", type=int, default=24, help="of an episode (24)")
    command.add_argument("--max-tokens", type=int, default=512, help="of a step (512)")
    json_option(command)


def run_eval(arguments: argparse.Namespace) -> int:
    """Exit status 0."""
    import anyio

    from actors.gate.exam import ExamSettings
    from daemon.cli.evaluation import as_json, evaluate
    from daemon.cli.output import print_json
    from daemon.composition import registry
    from daemon.composition.engines import engine_clients
    from daemon.composition.harness import harness
    from daemon.settings.reading import load

    for name in ("n", "tasks", "max_steps", "max_tokens"):
        if getattr(arguments, name) < 1:
            raise CommandFailed(f"--{name.replace('_', '-')} must be 1 or more")
    config = load(arguments.config, arguments.set)
    options = config.sandbox.options if arguments.env == config.sandbox.environment else {}
    environment = registry.build("environment", arguments.env, options)
    settings = ExamSettings(
        first_seed=arguments.first_task,
        families=arguments.families,
        attempts=arguments.n,
        max_steps=arguments.max_steps,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
    )
    url = arguments.engine or config.engines[0].url
    key = next((one.key for one in engine_clients(config).values() if one.url == url.rstrip("/")), "")
    result = anyio.run(
        evaluate, settings, environment, url, arguments.tasks, arguments.seed, _Progress(), key,
        harness(config.sandbox, config.limits.turn_seconds),
    )  # fmt: skip
    if arguments.json:
        print_json(as_json(result))
    else:
        _show(result)
    return 0


class _Progress:
    """Says on stderr how far it is, now and then."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, played: int, all_: int, solved: int) -> None:
        if time.monotonic() - self._said >= _PROGRESS_SECONDS:
            self._said = time.monotonic()
            print(f"eval: {played} of {all_} attempts, {100 * solved / played:.0f} % solved", file=sys.stderr)


def _show(result: "Result") -> None:
    from daemon.cli.output import OutputTable, screen

    version = f"version {result.version}" if result.version >= 0 else "version unknown, or it changed"
    table = OutputTable(title=f"{result.environment} on {result.engine}, {version}", title_justify="left")
    for column in ("family", "tasks", f"avg@{result.n}", "95 %", f"best@{result.n}", "95 %"):
        table.add_column(column, justify="left" if column == "family" else "right")
    rows = sorted(result.families.items(), key=lambda entry: -entry[1].tasks)
    for name, found in (*rows, ("all", result.total)):
        cells = [cell for figure in (found.average, found.best) for cell in _cells(figure)]
        table.add_row(name, str(found.tasks), *cells)
    console = screen()
    console.print(table)
    lost = f", {result.lost} tasks with an attempt that broke down" if result.lost else ""
    console.print(f"{result.total.attempts} attempts in {result.seconds:.1f} s{lost}")


def _cells(figure: "Interval") -> tuple[str, str]:
    return f"{100 * figure.estimate:.1f} %", f"[{100 * figure.low:.0f}, {100 * figure.high:.0f}]"

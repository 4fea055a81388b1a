"""`evolved tasks`: make tasks for an environment that nobody has written tasks for."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli.options import json_option, settings_options
from daemon.errors import CommandFailed

if TYPE_CHECKING:
    from actors.tasks.questioner.state import QuestionerState
    from daemon.cli.task_generation import Order

TASKS_HELP = """\
Make tasks by looking around in an environment: its tools are tried in fresh instances, what changed something is cut
down to the calls that were needed, executed again with other values and in other worlds, and said in words. Only what
replays is kept, and each task carries its reference, so that attempts at it can be verified. No daemon is needed.

examples:
  evolved tasks generate travel --count 200 --out tasks.json
  evolved tasks generate travel --count 400 --out tasks.json --resume      go on, or get more
  evolved tasks generate travel --set tasks.prefer.difficulty='[3]' --out hard.json
  evolved tasks --config config.toml generate travel --out tasks.json --llm     worded by the model in [llm]
  evolved tasks generate travel --out tasks.json --engine http://127.0.0.1:8001 --attempts 4
  jq -r '.tasks[].goal' tasks.json                                         what was made; .dropped: what was not

FILE is checkpoint and result in one: it is replaced after every world looked at, and --resume goes on from there
whatever ended the run before. Settings: [questioner], see config.toml.

Exit status: 0 done, 2 no such environment or file, or the environment cannot be probed.
"""
_PROGRESS_SECONDS = 2.0


def add_tasks(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("tasks", run_tasks, "Make tasks for an environment by looking around in it.")
    command.description, command.formatter_class = TASKS_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    make = actions.add_parser("generate", help="make tasks, each with a reference that was executed")
    make.add_argument("environment", metavar="ENVIRONMENT", help="environment adapter, such as travel")
    make.add_argument("--count", type=int, default=100, help="tasks wanted, those of earlier runs included (100)")
    make.add_argument("--seed", type=int, default=0, help="what is tried follows from it (0)")
    make.add_argument("--out", type=Path, required=True, metavar="FILE", help="where they are kept, as JSON")
    make.add_argument("--resume", action="store_true", help="go on where FILE ends")
    make.add_argument("--llm", action="store_true", help="word goals by the language model in [llm]")
    make.add_argument("--engine", metavar="URL", help="engine whose policy tries each task, without /v1")
    make.add_argument("--attempts", type=int, default=4, help="its attempts at each task (4)")
    json_option(make)
    settings_options(make)


def run_tasks(arguments: argparse.Namespace) -> int:
    """Exit status 0."""
    import anyio

    from daemon.cli.output import print_json
    from daemon.cli.task_generation import Order, figures, generate
    from daemon.settings.reading import load

    for name in ("count", "attempts"):
        if getattr(arguments, name) < 1:
            raise CommandFailed(f"--{name} must be 1 or more")
    order = Order(
        environment=arguments.environment, count=arguments.count, seed=arguments.seed, out=arguments.out,
        resume=arguments.resume, llm=arguments.llm, engine=arguments.engine or "", attempts=arguments.attempts,
    )  # fmt: skip
    began = time.monotonic()
    state = anyio.run(generate, load(arguments.config, arguments.set), order, _Progress(order))
    found = figures(state)
    if arguments.json:
        print_json({**found, "seconds": round(time.monotonic() - began, 3)})
    else:
        _summary(found, time.monotonic() - began)
    return 0


class _Progress:
    """Says on stderr how far it is, now and then."""

    def __init__(self, order: "Order") -> None:
        self._order, self._said = order, time.monotonic()

    def __call__(self, state: "QuestionerState") -> None:
        if time.monotonic() - self._said >= _PROGRESS_SECONDS:
            self._said = time.monotonic()
            proposed = state.counts.get("proposed", 0)
            print(
                f"tasks: {len(state.tasks)} of {self._order.count} kept, {proposed} proposed, {state.round} worlds",
                file=sys.stderr,
            )


def _summary(found: dict[str, Any], seconds: float) -> None:
    from daemon.cli.output import OutputTable, screen

    console = screen()
    table = OutputTable(title=f"tasks for {found['environment']}, seed {found['seed']}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("proposed", str(found["proposed"]))
    table.add_row("kept", str(found["kept"]))
    for reason, count in found["dropped"].items():
        table.add_row(f"dropped: {reason}", str(count))
    table.add_row("references that replay", f"{found['replayed']} of {found['replays']}")
    console.print(table)
    spent = f"{found['worlds']} worlds, {found['instances']} instances, {found['steps']} calls"
    console.print(f"{found['ended']}; {spent}, {seconds:.1f} s")

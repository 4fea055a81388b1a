"""`evolved curriculum`: what the sandbox plays and why, and how the tasks fare that were made here."""

import argparse
from collections import Counter
from typing import Any

from daemon.cli.options import json_option

CURRICULUM_HELP = """\
What is known of each kind of goal (a cluster: goals that differ in names and numbers alone), and the pool of tasks that
were made here.

  success      expected of the next attempt, from outcomes of late
  gain         what training on it is worth now: 0 is solved or hopeless, 1 learns
  demand       how much of traffic asks for it; the most wanted is 1
  sandbox      whether the sandbox has tasks of it
  raised       why it weighs more: traffic fails at it

examples:
  evolved curriculum
  evolved curriculum --tasks            # each task of the pool, with its state and the reason
  evolved curriculum --json | jq '.clusters[] | select(.urged)'
"""
_SHOWN = 12
"""Characters of a task's id on a terminal."""


def add_curriculum(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("curriculum", run_curriculum, "What the sandbox plays next and why, and the pool of tasks made here.")
    command.description, command.formatter_class = CURRICULUM_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("--tasks", action="store_true", help="list the pool's tasks too")
    json_option(command)


def run_curriculum(arguments: argparse.Namespace) -> int:
    """Exit status 0.

    Raises:
        ControlUnreachable: the daemon does not answer, or has no sandbox.
    """
    from daemon.cli.output import print_json
    from daemon.cli.status import fetch
    from daemon.settings.config import load

    control = load(arguments.config, arguments.set).control
    found = {**fetch(control, "/api/curriculum"), **fetch(control, "/api/tasks")}
    if arguments.json:
        print_json(found)
    else:
        show(found, tasks=arguments.tasks)
    return 0


def show(found: dict[str, Any], *, tasks: bool) -> None:
    """Print it as tables."""
    from rich.table import Column

    from daemon.cli.output import OutputTable, screen

    console = screen()
    table = OutputTable("cluster", "success", "gain", "demand", "sandbox", "raised", title="kinds of goal")
    for one in found["clusters"]:
        table.add_row(
            one["cluster"], f"{100 * one['success']:.0f} %", f"{one['gain']:.2f}", f"{one['demand']:.2f}",
            "yes" if one["playable"] else "no", "traffic fails" if one["urged"] else "",
        )  # fmt: skip
    console.print(table)
    pool = Counter[tuple[str, str]]((one["origin"], one["state"]) for one in found["tasks"])
    states = ("offered", "active", "set_aside", "retired")
    table = OutputTable("made from", *(state.replace("_", " ") for state in states), title="tasks made here")
    for origin in sorted({origin for origin, _ in pool}):
        table.add_row(origin, *(str(pool[origin, state]) for state in states))
    console.print(table)
    if found["counts"]:
        told = (f"{name.replace('_', ' ')} {number}" for name, number in sorted(found["counts"].items()) if number)
        console.print(", ".join(told))
    if not tasks:
        return
    table = OutputTable(
        Column("task", no_wrap=True, max_width=_SHOWN), "goal", "state", "tried", "solved", "difficulty", "why"
    )
    for one in found["tasks"]:
        table.add_row(
            one["id"], one["goal"], one["state"], str(one["tried"]), str(one["solved"]),
            f"{one['difficulty']:.2f}", one["reason"],
        )  # fmt: skip
    console.print(table)

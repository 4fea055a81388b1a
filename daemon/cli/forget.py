"""`evolved forget`: takes out what came from a trajectory, a tenant or an agent's key, by the control API."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from daemon.cli.options import json_option
from daemon.errors import CommandFailed

FORGET_HELP = """\
Take out what came from somebody: trajectories with their calls and feedback, waiting and parked copies, batch files,
and what was learned from them in words. Weights are not unlearned: the versions that saw some of it are listed.

examples:
  evolved forget --trajectory 9c1e... --dry-run          what would go, and which versions saw it
  evolved forget --trajectory 9c1e... --trajectory 77ab... --reason "request 4711"
  evolved forget --tenant acme --reason "contract ended"
  evolved forget --source 4f9c02d1a7be --reason "a user's own key"     an agent key's id, as `evolved keys list` has it

A trajectory takes its side calls along, and those that go on with its conversation. It shows what would go and asks
first, unless --yes. Done again, it finds nothing more; what the streams deliver again of it is refused for 31 days. The
order, with its reason, counts and versions, stays in the audit trail. The daemon must run.

Not reached: files that were exported, and the broker's streams, which drop it with their age (2 days; lessons and
orders 30). Revoke a key (`evolved keys revoke`) before its records are forgotten: later calls are new ones.
"""


def add_forget(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare it, by the command line's `add`."""
    command = add("forget", _run, "Take out what came from a trajectory, a tenant or a key.")
    command.description, command.formatter_class = FORGET_HELP, argparse.RawDescriptionHelpFormatter
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--trajectory", action="append", metavar="ID", help="repeatable")
    which.add_argument("--tenant", metavar="NAME", help="all of a tenant's")
    which.add_argument("--source", metavar="KEY", help="all that came with an agent key; its id")
    command.add_argument("--reason", default="", help="kept in the audit trail; needed unless --dry-run")
    command.add_argument("--dry-run", action="store_true", help="show what would go; touch nothing")
    command.add_argument("--yes", action="store_true", help="do not ask")
    json_option(command, help="one JSON document instead; asks on standard error")


def _run(arguments: argparse.Namespace) -> int:
    from daemon.cli.experience import connected
    from daemon.cli.lessons import show_forgotten
    from daemon.cli.output import print_json, screen
    from daemon.experience.client import Call

    body: dict[str, Any] = {"trajectories": arguments.trajectory or [], "tenant": arguments.tenant or ""}
    body |= {"source": arguments.source or "", "reason": arguments.reason}
    if not arguments.dry_run and not arguments.reason.strip():
        raise CommandFailed("why? give a --reason, it is kept in the audit trail; or --dry-run to look first")
    talk = screen(sys.stderr)
    with connected(arguments, timeout=1800.0) as client:

        def ask(dry_run: bool) -> dict[str, Any]:
            with talk.status("looking" if dry_run else "forgetting"):
                return dict(client.call(Call("POST", "/api/experience/forget", body=body | {"dry_run": dry_run})))

        if arguments.dry_run or not arguments.yes:
            found = ask(True)
            nothing = not any((found["trajectories"], found["exchanges"], found["feedback"], found["lessons"]))
            if not arguments.dry_run:
                show_forgotten(found, talk)
                if not nothing and not _agreed():
                    raise CommandFailed("nothing was touched")
            elif arguments.json:
                print_json(found)
                return 0
            else:
                show_forgotten(found)
                return 0
        told = ask(False)
    if arguments.json:
        print_json(told)
    else:
        show_forgotten(told)
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CommandFailed("nobody is there to be asked: give --yes; nothing was touched")
    print("forget it for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

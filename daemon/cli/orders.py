"""`evolved freeze`, `thaw`, `promote` and `rollback`: orders to the running daemon, by its control API."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from daemon.cli.options import json_option
from daemon.errors import ControlUnreachable

if TYPE_CHECKING:
    import httpx

PROMOTE = """\
Bring a version in by hand. The gate must have promoted it; --force goes past the gate's verdict (and past an earlier
rollback), needs a reason, and is kept with it. With several engines the version is still on trial at one of them first;
promoting the version that is on trial ends the trial.

examples:
  evolved promote 12
  evolved promote 12 --force --reason "gate's judge was down, checked by hand"
"""
ROLLBACK = """\
Go back to the version before, or to any that has served. What is left is not brought in again, unless by
`evolved promote --force`. Possible at any time, also while frozen. Learning goes on: `evolved freeze` stops it.

examples:
  evolved rollback --reason "incident 4711"
  evolved rollback --to 9 --reason "since 10 the answers are too long"
"""


def add_orders(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommands; `add` is the command line's."""
    commands: list[argparse.ArgumentParser] = []
    for name, text in (("freeze", "Stop learning; serving goes on."), ("thaw", "Go on learning.")):
        command = add(name, _run, text)
        command.add_argument("--reason", default="by hand", help="kept with the directive")
        commands.append(command)
    promote = add("promote", _run, "Bring a version in by hand.")
    promote.description, promote.formatter_class = PROMOTE, argparse.RawDescriptionHelpFormatter
    promote.add_argument("version", type=int, help="as in `evolved status`")
    promote.add_argument("--force", action="store_true", help="whatever the gate said of it")
    promote.add_argument("--reason", default="", help="kept with the directive; needed with --force")
    rollback = add("rollback", _run, "Go back to a version that served before.")
    rollback.description, rollback.formatter_class = ROLLBACK, argparse.RawDescriptionHelpFormatter
    rollback.add_argument("--to", type=int, metavar="VERSION", help="any that has served (the one before)")
    rollback.add_argument("--reason", required=True, help="kept with the directive")
    json_option(*commands, promote, rollback)


def _run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name, None) for name in ("version", "force", "to", "reason")}
    answer = _post(arguments, {name: value for name, value in given.items() if value is not None})
    if arguments.json:
        from daemon.cli.output import print_json

        print_json(answer)
        return 0
    details = answer["details"]
    what = {"promote": "version {version}", "rollback": "from {version} to {to}"}.get(arguments.command, "")
    print(f"{arguments.command}: sent {what.format(**details)}".rstrip())
    return 0


def _post(arguments: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    import httpx

    from daemon.cli.control_client import control_client, unreachable
    from daemon.settings.control import control_settings

    control = control_settings(arguments.config, arguments.set)
    with control_client(control, 10.0) as http:
        try:
            answer = http.post(f"/api/{arguments.command}", json=body)
            answer.raise_for_status()
            return dict(answer.json())
        except httpx.HTTPStatusError as error:
            raise ControlUnreachable(_told(error)) from error
        except (httpx.HTTPError, ValueError) as error:
            raise unreachable(control, error) from error


def _told(error: "httpx.HTTPStatusError") -> str:
    """What the daemon said of an order that it does not carry out."""
    from daemon.cli.control_client import refusal

    try:
        return str(error.response.json()["error"]["message"]) if error.response.status_code != 401 else refusal(error)
    except (ValueError, KeyError, TypeError):
        return refusal(error)

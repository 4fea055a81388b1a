"""The command line: `evolved SUBCOMMAND`. Each subcommand imports what it needs when it runs, so that none needs torch
but those that compute with it."""

import argparse
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from daemon.cli.examples import teach
from daemon.cli.options import json_option, settings_options
from daemon.errors import DaemonError
from daemon.tap.errors import TapError
from daemon.tap.key_form import Scope
from learner.errors import LearnerError

EPILOG = """\
examples:
  evolved demo                          the whole circle on this machine, some minutes
  evolved status                        what runs, what serves, how it fares
  evolved doctor                        what is wrong with this installation, and the remedy
  evolved freeze --reason "..."         no learning; agents are served as before
  evolved rollback --reason "..."       go back to the version before
  evolved plan --model 7b --gpus 8      memory, time and bytes before anything is rented
  evolved why 17                        what a version was trained on, and whether its signatures are good
  evolved keys --help                   what a command takes, with examples

The variable EVOLVED_CONFIG names the settings' file for every command that is given no --config.
"""

GROUPS = {
    "processes that run": ("tap", "run", "learner", "engine", "broker"),
    "in an emergency": ("freeze", "thaw", "rollback", "promote", "status", "doctor"),
    "versions": ("history", "why", "audit", "provenance"),
    "learning": ("eval",),
    "data": ("export", "import", "forget", "db"),
    "experience, environments, tools": ("experience", "environments", "tasks", "adapters", "tools"),
    "set-up": ("demo", "plan", "install", "config", "keys"),
}
"""Headings of `evolved --help`, and the subcommands below each."""

_ORDERS = ("freeze", "thaw", "promote", "rollback")
_ADDED = (
    ("learner", "add_learner", ("learner",)),
    ("plan", "add_plan", ("plan",)),
    ("orders", "add_orders", _ORDERS),
    ("doctor", "add_doctor", ("doctor",)),
    ("transfer", "add_commands", ("export", "import")),
    ("history", "add_history", ("history", "why", "audit")),
    ("install", "add_install", ("install",)),
    ("provenance", "add_provenance", ("provenance",)),
    ("eval", "add_eval", ("eval",)),
    ("environments", "add_environments", ("environments",)),
    ("tasks", "add_tasks", ("tasks",)),
    ("experience", "add_experience", ("experience",)),
    ("tools", "add_tools", ("tools",)),
    ("forget", "add_forget", ("forget",)),
    ("live", "add_adapters", ("adapters",)),
    ("db", "add_db", ("db",)),
)  # fmt: skip
"""Modules of `daemon.cli`, what adds their subcommands, and those. Of them only the one that was named is imported: all
of them take longer than an order in an emergency may."""

KEYS_HELP = """\
Agents' keys say whose a call is; operators' keys guard the control API, the dashboard and the tap's admin port. Neither
opens the other's.

scopes:
  agent        the agents' port: whose a call is
  environment  what `evolved environments serve` serves
  read         figures: status, metrics, success; what Prometheus needs
  content      that, and what agents and users wrote: trajectories, lessons, parked messages
  operate      that, and orders: freeze, thaw, rollback, promote, retry, approve a lesson
  admin        everything: also promote --force, forget, import, adding and removing live APIs
  teach        for an agents' framework (MCP): search, rate and draft lessons of its own tenant, nothing else

examples:
  evolved keys add --tenant acme --note "billing agent" --expires 90d
  evolved keys add --tenant ops --scope admin
  evolved keys add --tenant prometheus --scope read
  evolved keys list
  evolved keys revoke 4f9c02d1a7be

An agent shows its key in the header x-evolved-key, beside whatever authorization its engine wants, or as its API key
(Authorization: Bearer evk_...), if the engine wants none. Tap and daemon see a change within about a second.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit status (2: a setting or a start that failed)."""
    given = list(sys.argv[1:] if argv is None else argv)
    # The engine's options are its own, named as vLLM's: they are not this parser's to know.
    ours = given[:1] if given[:1] == ["engine"] else given
    arguments = parser(ours[0] if ours else "").parse_args(ours)
    arguments.rest = given[len(ours) :]
    try:
        if arguments.command not in _ORDERS:  # these log nothing, and must not wait for what could
            from daemon.logs import as_command

            as_command()
        return int(arguments.run(arguments) or 0)
    except (DaemonError, TapError, LearnerError) as error:
        print(f"evolved {arguments.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        # What no part of ours has a better word for: a full disk, a file that is not ours to write.
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has seen enough; nothing more may be written, not even at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"evolved {arguments.command}: {where}{error.strerror or error}; whoever runs evolved "
            "must be able to use it: see `evolved doctor`",
            file=sys.stderr,
        )
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        print(
            f"evolved {arguments.command}: needs {error.name}; install the extra: pip install 'evolved[learner]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """Says what may have been meant; subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong is not None:
            known = [name.strip().strip("'") for name in wrong[2].split(",")]
            near = difflib.get_close_matches(wrong[1], known, n=1)
            if near:
                message = f"{message[: wrong.start()]}{wrong[1]!r} is unknown; did you mean {near[0]}?"
        super().error(message)


class _Grouped(argparse.RawDescriptionHelpFormatter):
    """Shows the subcommands below the headings of `GROUPS`."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage] - see below
            return super()._format_action(action)
        # argparse has no groups of subcommands, and its formatter no public part to change.
        lines = {one.dest: super(_Grouped, self)._format_action(one) for one in action._get_subactions()}  # pyright: ignore
        groups = (
            f"{heading}:\n" + "".join(lines[name] for name in names if name in lines)
            for heading, names in GROUPS.items()
        )  # fmt: skip
        return "\n".join(groups)


class _Version(argparse.Action):
    """Prints the version that is installed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("evolved")
        except PackageNotFoundError:
            found = "of a checkout that is not installed"
        print(f"evolved {found}")
        parser.exit()


def parser(only: str = "") -> argparse.ArgumentParser:
    """The argument parser.

    Args:
        only: a subcommand, which is added without most others; anything else: all are there.
    """
    top = _Parser(
        prog="evolved",
        description="Watches production LLM agents, learns from what they do, and swaps a better model into the "
        "serving vLLM without dropping a request.",
        epilog=EPILOG,
        formatter_class=_Grouped,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print it and end")
    commands = top.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND", title=argparse.SUPPRESS)

    def add(name: str, run: Any, text: str, *, config: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if config:
            command.add_argument(
                "--config", type=Path, metavar="FILE", default=_config_file(),
                help="settings in TOML; what it leaves out has its default (the environment's EVOLVED_CONFIG)",
            )  # fmt: skip
            command.add_argument(
                "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one setting"
            )
        return command

    tap = add("tap", _tap, "Pass /v1/* through to the engine and copy what goes by into the spool.")
    tap.add_argument(
        "--number", type=int, choices=range(64), metavar="N",
        help="which of several taps of this machine it is, from 0 (the first that does not run)",
    )  # fmt: skip
    add("run", _run, "Run the daemon: actors, store, control API, dashboard.")
    add("broker", _broker, "Run nats-server with generated credentials.")

    engine = commands.add_parser(
        "engine",
        help="Serve a small model with the part of vLLM's HTTP surface that evolved uses; --vllm: start a real one.",
        add_help=False,
    )
    engine.set_defaults(run=_engine)

    demo = add("demo", _demo, "The closed loop on this machine, with real agents, ending in a table.", config=False)
    demo.add_argument(
        "--world", choices=["travel", "service"], default="travel",
        help="the travel desk, or the service desk with its requests in free words (travel)",
    )  # fmt: skip
    demo.add_argument("--feedback", type=_share, default=1.0, metavar="SHARE", help="of the outcomes are told (1)")
    demo.add_argument("--delay", type=_seconds, default=1.0, metavar="SECONDS", help="until they are, on average (1)")
    demo.add_argument(
        "--follow-ups", action="store_true",
        help="customers say afterwards what they think of it, and runs that nobody reports train on what the outcome "
        "model makes of that (world service)",
    )  # fmt: skip
    demo.add_argument("--seed", type=int, default=0, help="tasks, sampling and jitter follow from it (0)")
    demo.add_argument("--drift", action="store_true", help="rename tools in mid-run and watch it come back")
    demo.add_argument("--no-experience", action="store_true", help="without lessons in guided rollouts")
    demo.add_argument("--traffic-only", action="store_true", help="no sandbox: learn from the agents' own traffic")
    demo.add_argument(
        "--updates",
        type=int,
        metavar="N",
        help="stop after N updates, however success goes (else when held-out success is level over three measurements, "
        "as far as --tasks can tell: with 192 at some 93 %%; after 24 updates at the latest, traffic only 60, drift 12 "
        "before the rename)",
    )
    demo.add_argument("--minutes", type=float, default=7.0, help="stop learning after this long at the latest (7)")
    demo.add_argument("--tasks", type=int, default=192, help="held-out tasks per measurement (192)")
    demo.add_argument(
        "--vllm", type=Path, metavar="PYTHON", help="on two real vLLMs, of the environment with this interpreter"
    )
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    demo.add_argument("--dir", type=Path, metavar="DIR", help="where the run keeps its files (.run/demo-SEED)")
    demo.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one setting")

    status = add("status", _status, "What runs, what serves, what was counted.")
    json_option(status)

    _keys_arguments(add("keys", _keys, "Make, list and revoke keys for agents and operators."))

    alone = any(only in names for _, _, names in _ADDED)
    for module, function, names in _ADDED:
        if not alone or only in names:
            getattr(importlib.import_module(f"daemon.cli.{module}"), function)(add)

    config = add("config", _config, "Check the settings and print them with their defaults.")
    json_option(config)

    teach(top)
    return top


def _keys_arguments(command: argparse.ArgumentParser) -> None:
    command.description, command.formatter_class = KEYS_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("--file", type=Path, metavar="FILE", help="the key file (STATE_DIR/keys/keys.json)")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="make a key and print it, once")
    add.add_argument("--tenant", required=True, help="whose calls come with it")
    add.add_argument(
        "--scope",
        choices=get_args(Scope),
        default="agent",
        help="what it opens, as above (agent)",
    )
    add.add_argument("--expires", metavar="SPAN", help="in 12h, 90d or 26w (never)")
    add.add_argument("--note", default="", help="for the list: who has it, what for")
    listed = actions.add_parser("list", help="all keys, without their secrets")
    json_option(listed)
    revoke = actions.add_parser("revoke", help="from now on the key opens nothing")
    revoke.add_argument("id", help="as in the list, or the key itself")
    settings_options(add, listed, revoke)


def _config_file() -> Path | None:
    name = os.environ.get("EVOLVED_CONFIG")
    return Path(name) if name else None


def _settings(arguments: argparse.Namespace) -> Any:
    from daemon.settings.reading import load

    return load(arguments.config, arguments.set)


def _tap(arguments: argparse.Namespace) -> None:
    import msgspec

    from actors.system.notify import Notify
    from daemon.cli import garbage
    from daemon.logs import as_service
    from daemon.processes import preflight
    from daemon.processes.tap_settings import redaction, tap
    from daemon.tap.process import main as serve

    as_service()
    config = _settings(arguments)
    settings, redacted = tap(config, arguments.number), redaction(config)
    preflight.tap(config)
    garbage.seldom()
    serve(settings, msgspec.to_builtins(redacted), Notify.from_environment(os.environ))


def _run(arguments: argparse.Namespace) -> int:
    from daemon.cli import garbage
    from daemon.composition.service import main as serve
    from daemon.logs import as_service

    as_service()
    garbage.seldom()
    return serve(_settings(arguments))


def _broker(arguments: argparse.Namespace) -> int:
    from daemon.logs import as_service
    from daemon.processes.broker import main as serve

    as_service()
    return serve(_settings(arguments))


def _engine(arguments: argparse.Namespace) -> int:
    if any(option.partition("=")[0] == "--vllm" for option in arguments.rest):
        from adapters.engines.vllm_server import main as serve_vllm

        return serve_vllm(arguments.rest)
    from adapters.engines.embedded import main as serve
    from daemon.logs import as_service

    as_service()
    return int(serve(arguments.rest) or 0)


def _share(text: str) -> float:
    """A number from 0 to 1."""
    number = float(text)
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number from 0 to 1, such as 0.2")
    return number


def _seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    number = float(text)
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds, 0 or more")
    return number


def _demo(arguments: argparse.Namespace) -> int:
    from daemon.cli.output import screen
    from daemon.demo.scenario import Options, run
    from daemon.errors import ConfigError
    from daemon.settings import toml

    if arguments.follow_ups and arguments.world != "service":
        raise ConfigError("--follow-ups: nobody comes back to the travel desk; add --world service")
    overrides: dict[str, Any] = {}
    for text in arguments.set:
        overrides = toml.merge(overrides, toml.assignment(text))
    options = Options(
        directory=(arguments.dir or Path(".run") / f"demo-{arguments.seed}").absolute(),
        world=arguments.world,
        feedback=arguments.feedback,
        delay=arguments.delay,
        follow_ups=arguments.follow_ups,
        seed=arguments.seed,
        drift=arguments.drift,
        traffic_only=arguments.traffic_only,
        experience=not arguments.no_experience,
        updates=arguments.updates,
        minutes=arguments.minutes,
        tasks=arguments.tasks,
        vllm=arguments.vllm.absolute() if arguments.vllm else None,
        overrides=overrides,
    )
    run(options, screen(), arguments.json)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from daemon.cli.output import print_json
    from daemon.cli.status import fetch, show
    from daemon.doctor.settings import readable
    from daemon.settings.control import where

    # The daemon may well run with the settings from before a change that nobody can read.
    config, unknown = readable(arguments.config, arguments.set)
    for one in unknown:
        print(f"evolved status: {one.what}; {one.remedy}", file=sys.stderr)
    status = fetch(where(config.control))
    if arguments.json:
        print_json(status)
    else:
        show(status)
    return 0


def _keys(arguments: argparse.Namespace) -> int:
    from daemon.cli.keys import run

    return run(arguments, _settings(arguments))


def _config(arguments: argparse.Namespace) -> int:
    import tomli_w

    from daemon.cli.output import print_json
    from daemon.composition.checks import faults
    from daemon.errors import ConfigError
    from daemon.settings import reading

    table = reading.whole(arguments.config, arguments.set)
    config = reading.checked(table, reading.source_of(arguments.config))
    if found := list(faults(config)):
        raise ConfigError("\n".join(found))
    if arguments.json:
        print_json(table)
    else:
        print(tomli_w.dumps(table))
    return 0

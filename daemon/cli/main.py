"""The command line: `evolved SUBCOMMAND`. Each subcommand imports what it needs when it runs, so that none needs torch
but those that compute with it."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from daemon.cli.curriculum import add_curriculum
from daemon.cli.db import add_db
from daemon.cli.doctor import add_doctor
from daemon.cli.environments import add_environments
from daemon.cli.eval import add_eval
from daemon.cli.examples import teach
from daemon.cli.experience import add_experience
from daemon.cli.forget import add_forget
from daemon.cli.history import add_history
from daemon.cli.install import add_install
from daemon.cli.judge import add_judge
from daemon.cli.learner import add_learner
from daemon.cli.live import add_adapters
from daemon.cli.options import settings_options
from daemon.cli.orders import add_orders
from daemon.cli.provenance import add_provenance
from daemon.cli.replay import add_replay
from daemon.cli.tasks import add_tasks
from daemon.cli.tools import add_tools
from daemon.cli.transfer import add_commands
from daemon.cli.warmstart import add_warmstart
from daemon.errors import DaemonError
from daemon.tap.errors import TapError
from daemon.tap.keys import Scope
from learner.errors import LearnerError

EPILOG = """\
examples:
  evolved demo                          the whole circle on this machine, some minutes
  evolved tap --config config.toml      the pass-through in front of your vLLM
  evolved run --config config.toml      the daemon: actors, store, control API, dashboard
  evolved learner --config config.toml  the trainer, usually on another node
  evolved keys add --tenant acme        a key for an agent, shown once
  evolved engine --vllm MODEL           your vLLM, started as evolved needs it
  evolved status                        what runs, what serves, how it fares
  evolved doctor                        what is wrong with this installation, and the remedy
  evolved rollback --reason "..."       go back to the version before
  evolved eval --env travel --n 8       held-out success of an engine: avg@8 and best@8
  evolved environments check travel     does an environment keep its promises?
  evolved tasks generate travel --out tasks.json   tasks that the environment's worlds hold, each executed
  evolved export --since 7d             what the agents did, as JSONL
  evolved import chats.jsonl            conversations from elsewhere
  evolved experience search "..."       lessons that fit what you are about to do
  evolved adapters list                 live APIs: what agents and rollouts may call, and how each fares
  evolved tools search "..."            tools out of many that fit what is to be done
  evolved forget --tenant acme          take out what came from somebody, down to the lessons
  evolved history                       every version: judged how, served where, taken back why
  evolved install --system              systemd units for this machine
  evolved db backup FILE.tar            the store and what it does not hold, while the daemon runs
  evolved why 17                        what a version was trained on, and whether its signatures are good

The variable EVOLVED_CONFIG names the settings' file for every command that is given no --config.
"""

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
    arguments = parser().parse_args(ours)
    arguments.rest, arguments.given = given[len(ours) :], given
    try:
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


def parser() -> argparse.ArgumentParser:
    """The argument parser, subcommands and all."""
    top = argparse.ArgumentParser(
        prog="evolved",
        description="Watches production LLM agents, learns from what they do, and swaps a better model into the "
        "serving vLLM without dropping a request.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND")

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

    add("tap", _tap, "Pass /v1/* through to the engine and copy what goes by into the spool.")
    add("run", _run, "Run the daemon: actors, store, control API, dashboard.")
    add_learner(add)
    add("broker", _broker, "Run nats-server with generated credentials, as [broker] says.")

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
    status.add_argument("--json", action="store_true", help="as JSON")
    add_orders(add)
    add_doctor(add, parser)

    _keys_arguments(add("keys", _keys, "Make, list and revoke keys for agents and operators."))

    add_commands(add)
    add_history(add)
    add_install(add)
    add_provenance(add)
    add_replay(add)
    add_judge(add)
    add_curriculum(add)
    add_eval(add)
    add_environments(add)
    add_tasks(add)
    add_experience(add)
    add_tools(add)
    add_forget(add)
    add_adapters(add)
    add_db(add)

    config = add("config", _config, "Check the settings and print them with their defaults.")
    config.add_argument("--json", action="store_true", help="as JSON")
    config.add_argument("--reference", action="store_true", help="the commented reference with every default")
    config.add_argument("--markdown", action="store_true", help="with --reference: as the page docs/configuration.md")

    add_warmstart(add)
    teach(top)
    return top


def _keys_arguments(command: argparse.ArgumentParser) -> None:
    command.description, command.formatter_class = KEYS_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument(
        "--file", type=Path, metavar="FILE", help="the key file (tap.door.keys_file, else STATE_DIR/keys/keys.json)"
    )
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
    listed.add_argument("--json", action="store_true", help="as JSON")
    revoke = actions.add_parser("revoke", help="from now on the key opens nothing")
    revoke.add_argument("id", help="as in the list, or the key itself")
    settings_options(add, listed, revoke)


def _config_file() -> Path | None:
    name = os.environ.get("EVOLVED_CONFIG")
    return Path(name) if name else None


def _settings(arguments: argparse.Namespace) -> Any:
    from daemon.settings.config import load

    return load(arguments.config, arguments.set)


def _tap(arguments: argparse.Namespace) -> None:
    from actors.system.notify import Notify
    from daemon.composition.tap_reload import TapReloads, complaints
    from daemon.logs import as_service
    from daemon.settings.config import tap_redaction, tap_settings
    from daemon.tap.process import main as serve
    from daemon.tap.worker import ParentBound, role
    from daemon.tap.workers import main as serve_several

    as_service()
    config, manager, part = _settings(arguments), Notify.from_environment(os.environ), role(os.environ)
    if part is None:
        complaints(config)
    if part is None and config.tap.workers > 1:
        tap_redaction(config)
        serve_several(tap_settings(config), arguments.given, manager=manager)
        return
    told = tap_settings(config) if part is None else part.settings(tap_settings(config))
    serve(
        told,
        tap_redaction(config),
        manager=manager if part is None else ParentBound(manager, part.parent),
        gossip=None if part is None else part.gossip(),
        reloads=TapReloads(config, lambda: _settings(arguments), (lambda one: one) if part is None else part.settings),
    )


def _run(arguments: argparse.Namespace) -> int:
    from daemon.composition.service import main as serve
    from daemon.logs import as_service

    as_service()
    return serve(_settings(arguments), lambda: _settings(arguments))


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
    from rich.console import Console

    from daemon.demo.scenario import Options, run
    from daemon.settings import toml

    overrides: dict[str, Any] = {}
    for text in arguments.set:
        overrides = toml.merge(overrides, toml.assignment(text))
    options = Options(
        directory=(arguments.dir or Path(".run") / f"demo-{arguments.seed}").absolute(),
        world=arguments.world,
        feedback=arguments.feedback,
        delay=arguments.delay,
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
    run(options, Console(), arguments.json)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from daemon.cli.status import fetch, show
    from daemon.doctor.settings import readable

    # The daemon may well run with the settings from before a change that nobody can read.
    config, unknown = readable(arguments.config, arguments.set)
    for one in unknown:
        print(f"evolved status: {one.what}; {one.remedy}", file=sys.stderr)
    status = fetch(config.control)
    if arguments.json:
        print(json.dumps(status, indent=2))
    else:
        show(status)
    return 0


def _keys(arguments: argparse.Namespace) -> int:
    from daemon.cli.keys import run

    return run(arguments, _settings(arguments))


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _told(item) for key, item in value.items() if item is not None}
    return [_told(item) for item in value] if isinstance(value, list) else value


def _config(arguments: argparse.Namespace) -> int:
    import msgspec
    import tomli_w

    from daemon.settings.reference import reference
    from daemon.settings.reference_page import reference_page

    if arguments.reference:
        print(reference_page() if arguments.markdown else reference(), end="")
        return 0
    settings = msgspec.to_builtins(_settings(arguments))
    # TOML has no word for "none": such a key is left out.
    print(json.dumps(settings, indent=2) if arguments.json else tomli_w.dumps(_told(settings)))
    return 0

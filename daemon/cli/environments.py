"""`evolved environments`: which there are, whether one keeps its promises, and one over HTTP."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from actors.ports.environments import Environment
    from daemon.settings.tables import Config

HELP = """\
Environments are where tasks are attempted and verified. NAME is an installed one, as the list has it, or the class of
your own, as module:Class. Its options are [sandbox.options], if sandbox.environment names it.

  list    what is installed
  check   a quick play: tasks, tools, a bad call, the end, the verdict; says what is wrong
  serve   over HTTP, with AgentEvolver's routes (docs/sandbox.md). On loopback without a key; on any other
          address with one (`evolved keys add --scope environment --tenant NAME`), and with --tls-cert and --tls-key, or
          behind something that speaks TLS

examples:
  evolved environments list
  evolved environments check travel
  evolved environments check mine.envs:Shop --workers 1     in a process of its own: it may hang or crash
  evolved environments serve gymnasium --workers 2 --port 8100
  evolved environments --config config.toml serve travel --require-key

Exit status of check: 0 nothing is wrong, 1 something is, 2 it cannot be built.
"""


def add_environments(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("environments", run_environments, "List, check and serve environments.")
    command.description, command.formatter_class = HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="what is installed")
    check = actions.add_parser("check", help="does it keep its promises?")
    check.add_argument("name", metavar="NAME")
    check.add_argument("--families", metavar="LETTERS", help="kinds of task to check with (the environment's mix)")
    check.add_argument("--seconds", type=float, default=60.0, help="for each check (60)")
    serve = actions.add_parser("serve", help="over HTTP")
    serve.add_argument("name", metavar="NAME")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8100)
    serve.add_argument("--require-key", action="store_true", help="a key is needed on loopback too")
    serve.add_argument("--tls-cert", default="", metavar="FILE", help="speak TLS: the certificate chain, PEM")
    serve.add_argument("--tls-key", default="", metavar="FILE", help="its key, PEM")
    serve.add_argument("--max-instances", type=int, default=256, metavar="N", help="open at once (256)")
    serve.add_argument("--idle-seconds", type=float, default=900.0, help="until an instance counts as left (900)")
    serve.add_argument("--call-seconds", type=float, default=60.0, help="for each call of the environment (60)")
    for one in (check, serve):
        one.add_argument("--workers", type=int, default=0, metavar="N", help="worker processes (0: in this one)")
    json_option(listed, check)
    settings_options(listed, check, serve)


def run_environments(arguments: argparse.Namespace) -> int:
    """Exit status 0; 1 if a check finds something."""
    from daemon.settings.reading import load

    return _ACTIONS[arguments.action](arguments, load(arguments.config, arguments.set))


def _list(arguments: argparse.Namespace, config: "Config") -> int:
    from adapters.named import installed
    from daemon.cli.output import OutputTable, print_json, screen

    found = {name: point.value for name, point in sorted(installed("environment").items())}
    if arguments.json:
        print_json([{"name": name, "target": target} for name, target in found.items()])
        return 0
    table = OutputTable("name", "target", "used as")
    for name, target in found.items():
        table.add_row(name, target, "the sandbox" if name == config.sandbox.environment else "")
    screen().print(table)
    return 0


def _check(arguments: argparse.Namespace, config: "Config") -> int:
    import anyio
    import msgspec

    from daemon.cli.environment_check import check
    from daemon.cli.output import OutputTable, print_json, screen

    environment = _built(arguments, config)

    async def run() -> Any:
        try:
            return await check(environment, arguments.families, timeout=arguments.seconds)
        finally:
            close = getattr(environment, "aclose", None)
            if close is not None:
                await close()

    found = anyio.run(run)
    if arguments.json:
        print_json({"environment": environment.name, "checks": msgspec.to_builtins(found)})
    else:
        table = OutputTable("check", "result", "seconds", title=environment.name, title_justify="left")
        for one in found:
            table.add_row(one.check, one.problem or "good", f"{one.seconds:.2f}")
        screen().print(table)
    return int(any(one.problem for one in found))


def _serve(arguments: argparse.Namespace, config: "Config") -> int:
    from functools import partial

    import anyio

    from daemon.errors import ConfigError
    from daemon.processes.environment_service import ServeSettings, door, serve_environment

    if min(arguments.max_instances, arguments.idle_seconds, arguments.call_seconds) <= 0:
        raise ConfigError("--max-instances, --idle-seconds and --call-seconds must be above 0")
    settings = ServeSettings(
        host=arguments.host, port=arguments.port, require_key=arguments.require_key,
        tls_cert=arguments.tls_cert, tls_key=arguments.tls_key,
        max_instances=arguments.max_instances, idle_seconds=arguments.idle_seconds, call_seconds=arguments.call_seconds,
    )  # fmt: skip
    door(settings, config.keys, clock=float)  # before anything is built
    environment = _built(arguments, config)

    def ready() -> None:
        print(
            f"{environment.name} at http{'s' if settings.tls_cert else ''}://{settings.host}:{settings.port}",
            file=sys.stderr,
            flush=True,
        )

    anyio.run(partial(serve_environment, environment, settings, config.keys, ready=ready))
    return 0


def _built(arguments: argparse.Namespace, config: "Config") -> "Environment":
    from daemon.composition.environments import build_environment

    options = config.sandbox.options if arguments.name == config.sandbox.environment else {}
    return build_environment(arguments.name, options, arguments.workers)


_ACTIONS = {"list": _list, "check": _check, "serve": _serve}

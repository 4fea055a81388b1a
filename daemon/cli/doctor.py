"""`evolved doctor`: for whoever has just installed it, or is on call."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.options import json_option

if TYPE_CHECKING:
    from daemon.doctor import Examined, Finding

DOCTOR_HELP = """\
Looks for what is most likely wrong with an installation and names the remedy: engines, broker, ports, disk, store,
keys, certificates, versions, and settings that nothing knows. Changes nothing; the daemon may run or not.
One token is sampled from each engine.

examples:
  evolved doctor --config /etc/evolved/config.toml
  evolved doctor --json | jq -r '.findings[] | [.severity, .check, .remedy] | @tsv'
  evolved doctor --only "engines" "engine endpoints"

Run it as who runs the daemon: sudo -u evolved evolved doctor --config /etc/evolved/config.toml

Exit status: 0 nothing is wrong (warnings may be there), 1 something is, 2 it could not look.
"""
_COLOURS = {"well": "green", "warning": "yellow", "fault": "red"}


def add_doctor(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare it, by the command line's `add`."""
    doctor = add("doctor", run_doctor, "Find what is wrong with an installation, and the remedy.")
    doctor.description, doctor.formatter_class = DOCTOR_HELP, argparse.RawDescriptionHelpFormatter
    doctor.add_argument("--only", nargs="+", metavar="CHECK", help="by name, as in the table (all)")
    doctor.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="units of an image (this machine's)"
    )
    doctor.add_argument("--seconds", type=float, default=5.0, help="for each check (5)")
    json_option(doctor)


def run_doctor(arguments: argparse.Namespace) -> int:
    """Exit status 0, 1 if something is wrong."""
    import anyio

    from daemon.doctor import ALL, Check, Scene, examine, readable
    from daemon.errors import ConfigError

    config, unknown = readable(arguments.config, arguments.set)

    async def settings(scene: Scene) -> "list[Finding]":
        del scene
        return unknown

    checks = (Check("settings", "the settings have no key that nothing reads", settings), *ALL)
    if arguments.only:
        names = {check.name for check in checks}
        wrong = sorted(set(arguments.only) - names)
        if wrong:
            raise ConfigError(f"--only {wrong[0]!r}: no such check; there are {', '.join(sorted(names))}")
        checks = tuple(check for check in checks if check.name in arguments.only)
    scene = Scene(config, root=arguments.root)
    left = {check.name for check in checks}

    def progress(one: "Examined") -> None:
        left.discard(one.check)
        if sys.stderr.isatty():
            print(f"\r\x1b[K{len(left)} to go: {', '.join(sorted(left))}"[:100], end="", file=sys.stderr, flush=True)

    async def work() -> "list[Examined]":
        return await examine(scene, checks, seconds=arguments.seconds, done=progress)

    done = anyio.run(work)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if arguments.json:
        import msgspec

        from daemon.cli.output import print_json

        flat = [{"check": one.check, **msgspec.to_builtins(item)} for one in done for item in one.findings]
        print_json({"findings": flat, "checks": msgspec.to_builtins(done)})
    else:
        show(done)
    return 1 if any(one.state == "fault" for one in done) else 0


def show(done: "list[Examined]") -> None:
    """Print what was found: the table of the checks, then each finding with its remedy."""
    from rich.table import Column

    from daemon.cli.output import OutputTable, coloured, screen

    console = screen()
    table = OutputTable(Column("check", no_wrap=True), "state", "looks at")
    for one in done:
        told = one.state if one.state in _COLOURS else f"not looked: {one.why_not}"
        table.add_row(one.check, coloured(told, _COLOURS.get(one.state, "")), one.looks_at)
    console.print(table)
    for one in done:
        for finding in one.findings:
            sign = coloured(finding.severity, _COLOURS[finding.severity])
            console.print(sign, f"{one.check}: {finding.what}", soft_wrap=True)
            console.print(f"  remedy: {finding.remedy}", soft_wrap=True)
    if not any(one.findings for one in done):
        console.print("nothing found")

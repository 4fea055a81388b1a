"""`evolved install`."""

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon.cli.options import json_option
from daemon.errors import CommandFailed

HELP = """\
Writes systemd units, a user and settings, so that evolved runs as services from the next boot on. --dry-run shows
what it would write. Settings that are there stay; docs/operate.md says how to take it back.

  tap       the pass-through in front of your vLLM; its port is held by a socket unit, so that restarts refuse nobody
  broker    nats-server, for machines without a NATS of their own
  daemon    actors, store, control API, dashboard
  learner   the trainer, on the machine with the GPU for it
  engine    vLLM itself, where nothing else starts it

examples:
  sudo /opt/evolved/bin/evolved install --system
  sudo /opt/evolved/bin/evolved install --system --units learner
  evolved install --system --root /tmp/image --dry-run
"""


def add_install(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand; `add` is the command line's."""
    install = add("install", _install, "Write systemd units, a user and settings for this machine.", config=False)
    install.description, install.formatter_class = HELP, argparse.RawDescriptionHelpFormatter
    install.add_argument("--system", action="store_true", required=True, help="system services; there are no others")
    install.add_argument("--units", nargs="+", metavar="UNIT", help="which of them (tap broker daemon)")
    install.add_argument("--config", type=Path, metavar="FILE", help="settings to put into /etc/evolved/config.toml")
    install.add_argument("--dry-run", action="store_true", help="say what would be written, write nothing")
    install.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="of an image, not of this machine")
    json_option(install)


def _install(arguments: argparse.Namespace) -> int:
    from daemon.settings.reading import load
    from daemon.upkeep import install

    root: Path = arguments.root
    source = arguments.config
    present = root / install.SETTINGS / "config.toml"
    if source is None and present.exists():
        source = present
    source = source or install.example()
    units = arguments.units or install.USUAL
    todo = install.plan(load(source), source.read_bytes(), units)
    if arguments.dry_run:
        _tell(arguments, {"would_write": sorted(f"/{name}" for name in todo)})
        return 0
    wrote = install.install(todo, root)
    ran = _live(
        root,
        [["systemd-sysusers"], ["systemd-tmpfiles", "--create", install.DIRECTORIES], ["systemctl", "daemon-reload"]],
    )
    services = " ".join(install.service(unit, "0") for unit in units)
    _tell(arguments, {"wrote": wrote, "ran": ran, "next": f"systemctl enable --now evolved.target {services}"})
    return 0


def _live(root: Path, commands: list[list[str]]) -> list[str]:
    """Run `commands` if `root` is this machine and systemd runs it; what was run."""
    if root.resolve() != Path("/") or not Path("/run/systemd/system").is_dir():
        return []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandFailed(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return [" ".join(command) for command in commands]


def _tell(arguments: argparse.Namespace, told: dict[str, Any]) -> None:
    if arguments.json:
        from daemon.cli.output import print_json

        print_json(told)
        return
    for word, what in told.items():
        lines = [what] if isinstance(what, str) else what
        for line in lines:
            print(f"{word.replace('_', ' ')}: {line}")

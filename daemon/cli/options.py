"""Options that many subcommands have."""

import argparse
from pathlib import Path
from typing import Any


def settings_options(*actions: argparse.ArgumentParser) -> None:
    """Let `--config` and `--set` stand behind the names of `actions` too; not given there, what stood before holds."""
    for action in actions:
        action.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="settings in TOML")
        action.add_argument(
            "--set", action="append", metavar="SECTION.KEY=VALUE", default=argparse.SUPPRESS,
            help="override one setting",
        )  # fmt: skip


def json_option(
    *actions: argparse.ArgumentParser, help: str = "one JSON document instead, and nothing else", default: Any = False
) -> None:
    """Let `actions` print JSON (`daemon.cli.output.print_json`) in place of what people read."""
    for action in actions:
        action.add_argument("--json", action="store_true", default=default, help=help)

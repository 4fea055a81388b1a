"""`evolved keys`: make, list and revoke keys. A new key is printed once; what is kept of it is a digest."""

import argparse
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Column

from daemon.cli.output import OutputTable, print_json, screen
from daemon.errors import ConfigError
from daemon.settings.tables import KEYS, Config
from daemon.tap.keys import PREFIX, Key, add_key, read_keys, revoke_key

_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_TENANT_LENGTH = 256


def run(arguments: argparse.Namespace, config: Config) -> int:
    """Do what the command line says."""
    path = arguments.file or config.keys or config.state / KEYS
    return _ACTIONS[arguments.action](arguments, config, path)


def _add(arguments: argparse.Namespace, config: Config, path: Path) -> int:
    tenant = arguments.tenant.strip()
    if not tenant or len(tenant) > _TENANT_LENGTH:
        raise ConfigError(f"--tenant: give a name of at most {_TENANT_LENGTH} characters")
    now, in_force = time.time(), config.keys
    expires = None if arguments.expires is None else now + _seconds(arguments.expires)
    text, key = add_key(
        path, tenant=tenant, scope=arguments.scope, now=now, expires=expires, note=arguments.note.strip()
    )
    # Alone on standard output, so that a script can take it.
    print(text)
    _say(f"{key.scope} key {key.id} for {key.tenant}; it is shown this once, and only its digest is in {path}")
    if in_force is None or in_force.absolute() != path.absolute():
        _say("the first key: it is in force when tap and daemon have been started again")
    return 0


def _list(arguments: argparse.Namespace, config: Config, path: Path) -> int:
    keys, now = read_keys(path), time.time()
    if arguments.json:
        print_json([_shown(key, now) for key in keys])
        return 0
    table = OutputTable(Column("id", no_wrap=True), "scope", "tenant", "state", "created", "expires", "note")
    for key in keys:
        table.add_row(
            key.id, key.scope, key.tenant, key.state(now), _day(key.created), _day(key.expires),
            key.note,
        )  # fmt: skip
    screen().print(table)
    return 0


def _revoke(arguments: argparse.Namespace, config: Config, path: Path) -> int:
    given, prefix = arguments.id.strip(), PREFIX.decode()
    key_id = given.removeprefix(prefix).partition("_")[0]
    key = revoke_key(path, key_id, now=time.time())
    if key is None:
        # Never the argument itself: it may be a key.
        raise ConfigError(f"{path}: no key of that id; `evolved keys list` shows them")
    _say(f"revoked: {key.scope} key {key.id} of {key.tenant}, since {_day(key.revoked)}")
    return 0


_ACTIONS = {"add": _add, "list": _list, "revoke": _revoke}


def _seconds(text: str) -> float:
    found = _SPAN.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ConfigError(f"--expires {text!r}: write a span such as 12h, 90d or 26w")
    return int(found[1]) * _UNITS[found[2]]


def _shown(key: Key, now: float) -> dict[str, Any]:
    told = msgspec.to_builtins(key)
    del told["digest"]
    return {**told, "state": key.state(now)}


def _day(at: float | None) -> str:
    return "never" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _say(text: str) -> None:
    print(text, file=sys.stderr)

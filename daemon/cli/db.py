"""`evolved db`: the store as a thing to look after: schema, copies, whether it is sound, the room it takes."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from daemon.settings.tables import Config

DB_HELP = """\
The store: SQLite in state_dir, or PostgreSQL, whichever [database] names.

examples:
  evolved db status                               schema, size, what is kept since when
  evolved db backup /backup/monday                while the daemon runs; --with-keys for those too
  evolved db check                                pages, rows, audit trail, signatures
  evolved db restore /backup/monday               where nothing is in the way

Exit status: 0; 1 check found something; 2 it cannot be done, and why.
"""
BACKUP_HELP = """\
Copy the store, and from state_dir manifests of versions, registered adapters and snapshots of lessons, into a new
directory. The daemon may run and write: what was committed when it began is in it. Keys only if asked for; weights are
in state_dir/versions and state_dir/learner, for rsync to copy.

examples:
  evolved db backup /backup/monday --config config.toml
  evolved db backup /backup/all --with-keys     keep it where keys may be kept

A store in PostgreSQL is not in it: pg_dump copies that. Traffic in the streams and in the spool is not in it either.
"""
RESTORE_HELP = """\
Check a backup (each file's SHA-256, the audit trail) and put it in place. Refused while a daemon runs, and where
something is in the way: it says what to move aside. A store in PostgreSQL is restored by pg_restore before this.

At its next start the daemon has the streams delivered again from their beginning: what was handled before the backup is
marked and not done again, what came after it is handled anew with the ids that it had.

examples:
  evolved db restore /backup/monday --config config.toml
"""


def add_db(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("db", _run, "The store: schema, backup, restore, check, room.")
    command.description, command.formatter_class = DB_HELP, argparse.RawDescriptionHelpFormatter
    json_option(command)
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, description: str = "") -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=description or text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        settings_options(parser)
        json_option(parser, default=argparse.SUPPRESS)  # given before the action it holds too
        return parser

    action("status", "schema, size, what is kept since when")
    backup = action("backup", "copy it while the daemon runs", BACKUP_HELP)
    backup.add_argument("out", type=Path, metavar="OUT", help="a directory to make")
    backup.add_argument("--with-keys", action="store_true", help="key files and secrets of live APIs too")
    restore = action("restore", "put a backup in place; the daemon must not run", RESTORE_HELP)
    restore.add_argument("source", type=Path, metavar="BACKUP", help="as `evolved db backup` wrote it")
    action("check", "is it sound?")


def _run(arguments: argparse.Namespace) -> int:
    from actors.store import StoreError
    from daemon.errors import CommandFailed
    from daemon.settings.reading import load

    config = load(arguments.config, arguments.set)
    try:
        actions = {"status": _status, "backup": _backup, "restore": _restore, "check": _check}
        return actions[arguments.action](arguments, config)
    except StoreError as error:
        raise CommandFailed(str(error)) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(arguments: argparse.Namespace, told: dict[str, Any]) -> None:
    """`told` as JSON, or as a table of two columns."""
    from daemon.cli.output import OutputTable, print_json, screen

    if arguments.json:
        print_json(told)
        return
    table = OutputTable.grid(padding=(0, 2))
    for name, value in told.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    screen().print(table)


def _status(arguments: argparse.Namespace, config: "Config") -> int:
    from actors.store.audit import head
    from actors.store.engine import located
    from actors.store.retention import kept_since, used_bytes
    from actors.store.schema import wanted
    from daemon.api.why import when

    def look(connection: "Connection") -> dict[str, Any]:
        (used, taken), (runs, calls) = used_bytes(connection), kept_since(connection)
        return {
            "store": located(connection.engine), "schema": wanted(), "bytes": taken, "free_bytes": taken - used,
            "audit_head": str(head(connection)),
            "oldest_trajectory": when(runs) if runs is not None else "none",
            "oldest_exchange": when(calls) if calls is not None else "none",
        }  # fmt: skip

    _print(arguments, _asked(config, look))
    return 0


def _asked(config: "Config", question: Any) -> Any:
    from actors.store.archive import ask

    return ask(config.store_url, question, config.database.password_file)


def _backup(arguments: argparse.Namespace, config: "Config") -> int:
    from daemon.upkeep.backup import backup

    made = backup(config, arguments.out, settings=arguments.config, with_keys=arguments.with_keys)
    told = {
        "backup": str(arguments.out), "schema": made.schema, "audit_head": made.head, "files": len(made.files),
        "bytes": sum(file.size for file in made.files), "keys": made.keys,
    }  # fmt: skip
    _print(arguments, told)
    return 0


def _restore(arguments: argparse.Namespace, config: "Config") -> int:
    from daemon.api.why import when
    from daemon.upkeep.restore import restore

    contents, settings = restore(config, arguments.source, say=_say), arguments.source / "config.toml"
    told = {
        "restored": str(arguments.source), "made": when(contents.created), "schema": contents.schema,
        "audit_head": contents.head, "files": len(contents.files),
        "settings": str(settings) if settings.exists() else "not in it",
        "keys": "restored" if contents.keys else "not in it",
    }  # fmt: skip
    _print(arguments, told)
    return 0


def _check(arguments: argparse.Namespace, config: "Config") -> int:
    import msgspec

    from actors.messages.signing import record_problem
    from actors.store.archive import ask
    from actors.store.integrity import Checked, check, pages
    from daemon.cli.output import print_json
    from daemon.upkeep.provenance import Provenance

    keys = Provenance(config.state).trusted("gate")
    say = (lambda text: None) if arguments.json else _say
    findings = pages(config.store_url)
    found = Checked(schema="", rows={}, findings=tuple(findings))
    if not findings:
        problem = (lambda record: record_problem(record, keys)) if keys.path.is_file() else None
        found = ask(config.store_url, lambda connection: check(connection, problem, say), config.database.password_file)
    if arguments.json:
        print_json(msgspec.to_builtins(found))
        return 1 if found.findings else 0
    _print(arguments, {**found.rows, "audit_head": found.head, "good_signatures": found.signatures})
    for finding in found.findings:
        print(f"found: {finding.what}\n  remedy: {finding.remedy}")
    print(f"{len(found.findings)} findings" if found.findings else "sound")
    return 1 if found.findings else 0

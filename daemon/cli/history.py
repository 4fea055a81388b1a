"""`evolved history`, `why`, `audit`: what became of the weights, out of the store, whether the daemon runs or not."""

import argparse
import sys
from pathlib import Path
from typing import Any

from daemon.cli.options import json_option

HISTORY_HELP = """\
Every version: its parent, when it was trained, what the gate said, where it served and how long, and what went wrong.

examples:
  evolved history --config config.toml
  evolved history --json | jq '.[] | select(.setbacks != [])'

The store is only read; the daemon may run or not. `evolved why VERSION` tells the rest of one.
"""
WHY_HELP = """\
Of a version: its line of parents, the batches it was trained on and whose trajectories are in them, the learner's
figures, every measurement of every verdict, and whether the signatures are good.

Of a run: what was reported of it and when, how late, what each report did, and what came of the run: trained into which
version by which order, held out as evidence of the gate, used for lessons and tasks, or why not. A run is named by its
own id, by that of a call, a response or a report, or by the id that its agent gave it.

examples:
  evolved why 17 --config config.toml
  evolved why 17 --json | jq '.verdicts[].measurements'
  evolved why chatcmpl-8f3
  evolved why --run 4711                        a run whose name looks like a version's
  evolved why order-4711 --json | jq '.reports[].did'

Exit status: 0, 1 a signature or a digest is not good, 2 there is no such version or run.
"""
AUDIT_HELP = """\
Candidates, verdicts, servings and directives, each once, in a chain of hashes.

examples:
  evolved audit verify                           walk the chain, and hold the records against it
  evolved audit verify --anchor 812:5f0c...      and see that it goes through a head that was kept elsewhere
  evolved audit head                             that head, to be kept elsewhere
  evolved audit show --json | jq 'select(.kind == "directive")'

A chain alone cannot tell that its end was cut off with the records, nor that all of it was written anew. Keep heads
where whoever may write to the database may not: the daemon logs each (event audit_head).

Exit status: 0, 1 the trail is broken, 2 it cannot be read.
"""


def add_history(add: Any) -> None:
    """Declare them, by the command line's `add`."""
    command = add("history", run_history, "What became of every version.")
    command.description, command.formatter_class = HISTORY_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("--limit", type=int, default=30, metavar="N", help="newest versions to show, 0 for all (30)")
    json_option(command)

    command = add("why", run_why, "Where a version comes from; what was reported of a run, and what came of it.")
    command.description, command.formatter_class = WHY_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("name", metavar="VERSION|RUN", help="17 or v17; or any id of a run")
    command.add_argument(
        "--run", action="store_true", dest="of_run", help="it is a run's, though it looks like a version's"
    )
    json_option(command)

    command = add("audit", run_audit, "The audit trail: verify it, show it.")
    command.description, command.formatter_class = AUDIT_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("action", choices=("verify", "show", "head"))
    command.add_argument("--anchor", metavar="SEQUENCE:HASH", help="verify: a head from before")
    json_option(command, help="one JSON document instead; show: an entry a line")


def run_history(arguments: argparse.Namespace) -> int:
    """Exit status 0."""
    import msgspec
    from rich.table import Column

    from actors.store.stories import history
    from daemon.api.why import how_long, when
    from daemon.cli.output import OutputTable, print_json, screen

    newest = arguments.limit if arguments.limit > 0 else None
    found = _asked(arguments, lambda connection: history(connection, newest))
    if arguments.json:
        print_json(msgspec.to_builtins(found))
        return 0
    table = OutputTable(Column("version", no_wrap=True), "parent", "trained", "verdict", "served", "setbacks")
    for item in found:
        last = item.verdicts[-1] if item.verdicts else None
        table.add_row(
            f"v{item.version}",
            "" if item.parent is None or item.parent < 0 else f"v{item.parent}",
            when(item.trained),
            "" if last is None else f"{last.decision}: {last.reason}",
            "\n".join(f"{span.engine} {when(span.since)} {how_long(span.since, span.until)}" for span in item.served),
            "\n".join(f"{back.kind} ({back.who}) {when(back.at)}: {back.reason}" for back in item.setbacks),
        )
    screen().print(table)
    return 0


def run_why(arguments: argparse.Namespace) -> int:
    """Exit status 0, 1 if a signature or digest is not good."""
    from actors.store.stories import why
    from daemon.api.why import explain
    from daemon.cli.output import print_json
    from daemon.cli.why import show
    from daemon.errors import CommandFailed

    version = None if arguments.of_run else _version(arguments.name)
    if version is None:
        return _run_story(arguments)
    found = _asked(arguments, lambda connection: why(connection, version))
    if found is None:
        raise CommandFailed(
            f"no version {version} in the store; `evolved history` lists them, "
            f"and `evolved why --run {arguments.name}` looks for a run of that name"
        )
    told = explain(found, _config(arguments))
    if arguments.json:
        print_json(told)
    else:
        show(told)
    return 1 if told["problems"] else 0


def _version(name: str) -> int | None:
    """The version that `name` is; None: it is a run's."""
    digits = name.removeprefix("v")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 9 else None


def _run_story(arguments: argparse.Namespace) -> int:
    from actors.store.run_story import RunStory, run_story
    from daemon.api.run_story import lines, told, unknown
    from daemon.cli.output import print_json, screen
    from daemon.errors import CommandFailed

    found = _asked(arguments, lambda connection: run_story(connection, arguments.name))
    if not isinstance(found, RunStory):
        raise CommandFailed(unknown(arguments.name, found))
    if arguments.json:
        print_json(told(found))
    else:
        screen().print("\n".join(lines(found)), soft_wrap=True)
    return 0


def run_audit(arguments: argparse.Namespace) -> int:
    """Exit status 0, 1 if the trail is broken."""
    import msgspec

    from actors.store.audit import Head, entries, head, verify
    from daemon.api.why import when
    from daemon.cli.output import print_json
    from daemon.errors import ConfigError

    if arguments.action == "head":
        found = _asked(arguments, head)
        if arguments.json:
            print_json(msgspec.to_builtins(found))
        else:
            print(found)
        return 0
    if arguments.action == "show":
        for entry in _asked(arguments, lambda connection: list(entries(connection))):
            line = f"{entry.sequence} {when(entry.at)} {entry.kind} {entry.subject} {entry.hash[:16]}"
            print(msgspec.json.encode(entry).decode() if arguments.json else line)
        return 0
    anchor = None
    if arguments.anchor:
        sequence, _, digest = arguments.anchor.partition(":")
        if not sequence.isdecimal() or len(digest) != 64:
            raise ConfigError(f"--anchor {arguments.anchor!r}: write SEQUENCE:HASH, as `evolved audit head` prints it")
        anchor = Head(int(sequence), digest)
    findings = _asked(arguments, lambda connection: verify(connection, anchor))
    if arguments.json:
        print_json(msgspec.to_builtins(findings))
    elif findings.problem:
        at = "" if findings.broken is None else f"entry {findings.broken}: "
        print(f"broken: {at}{findings.problem}; {findings.head.sequence:,} entries before are sound", file=sys.stderr)
    else:
        print(f"sound: {findings.head.sequence:,} entries; head {findings.head}")
    return 1 if findings.problem else 0


def _asked(arguments: argparse.Namespace, question: Any) -> Any:
    """The store's answer, read-only."""
    from actors.store.archive import ask
    from actors.store.errors import StoreError
    from daemon.errors import CommandFailed

    config = _config(arguments)
    try:
        return ask(config.store_url, question, config.database.password_file)
    except StoreError as error:
        raise CommandFailed(str(error)) from error


def _config(arguments: argparse.Namespace) -> Any:
    from daemon.settings.reading import load

    path: Path | None = arguments.config
    return load(path, arguments.set)

"""`evolved export` and `evolved import` on the command line: their options, and what they print."""

import argparse
import logging
import sys
import time
from typing import Any

from daemon.cli.options import json_option

EXPORT_HELP = """\
Write what the store holds as JSON, one record a line. The daemon may run meanwhile: the store is only read.

examples:
  evolved export --config config.toml --since 7d --out week.jsonl.gz
  evolved export --tenant acme | jq -r '[.trajectory.goal, .trajectory.outcome] | @tsv'
  evolved export --kind exchanges --since 2026-05-01 --until 2026-06-01 --out may.jsonl

Kinds: trajectories (with the labels of their steps, once they have some), exchanges (single calls), feedback. A file
whose name ends in .gz is compressed. Whoever can read the file can read the agents' prompts and answers.
"""
IMPORT_HELP = """\
Bring JSONL in: what `evolved export` wrote, or conversations as for fine-tuning, {"messages": [...]} a line. Each is as
many calls as it has answers; "tools" and "outcome" (0 to 1) may stand beside the messages.

examples:
  evolved import --config config.toml week.jsonl.gz
  evolved import chats.jsonl --dry-run              what is in it, what is wrong with it; nothing is sent
  zcat chats.jsonl.gz | evolved import - --tenant acme

It publishes to the broker, which must run; the daemon need not. Secrets and personal data are taken out on the way.
Importing a file again changes nothing: records are known by their ids. Labels are not imported, this installation's
judge gives its own. Imported records are not trained on, unless --trainable says that they come from this installation:
token ids and weight versions mean nothing elsewhere.

Exit status: 0 all lines are in, 1 some are bad, 2 it could not start or go on: what is in is recognised when it is run
again.
"""


def add_commands(add: Any) -> None:
    """Declare both, by the command line's `add`."""
    command = add("export", run_export, "Write trajectories, calls or feedback as JSONL.")
    command.description, command.formatter_class = EXPORT_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument(
        "--kind", choices=("trajectories", "exchanges", "feedback"), default="trajectories", help="(trajectories)"
    )
    command.add_argument("--since", metavar="TIME", help="2026-05-01, 2026-05-01T12:30 (UTC), 7d (ago), unix seconds")
    command.add_argument("--until", metavar="TIME", help="the same; not included")
    command.add_argument("--tenant", metavar="NAME", help="of this tenant alone")
    command.add_argument("--out", default="-", metavar="FILE", help="file to write, - for standard output (-)")

    command = add("import", run_import, "Bring JSONL in: exported records, or conversations.")
    command.description, command.formatter_class = IMPORT_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("file", metavar="FILE", help="- for standard input")
    command.add_argument(
        "--kind",
        choices=("auto", "trajectories", "exchanges", "feedback", "chat"),
        default="auto",
        help="what the lines must be; auto takes each for what it is (auto)",
    )
    command.add_argument("--tenant", metavar="NAME", help="whose records they are, whatever the lines say")
    command.add_argument("--trainable", action="store_true", help="the file comes from this very installation")
    command.add_argument("--dry-run", action="store_true", help="read and check, send nothing")
    json_option(command)


def run_export(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 if the reader of standard output went away."""
    from daemon.ingest.transfer import export, moment
    from daemon.settings.reading import load

    config, now = load(arguments.config, arguments.set), time.time()
    since, until = (None if text is None else moment(text, now) for text in (arguments.since, arguments.until))
    try:
        number = export(
            config, arguments.out, arguments.kind, since=since, until=until, tenant=arguments.tenant, say=_say
        )
    except BrokenPipeError:
        # `| head` had enough: no error, but what follows must not flush into the closed pipe.
        sys.stdout = None  # type: ignore[assignment]
        return 1
    _say(f"{number:,} {arguments.kind} exported" + ("" if arguments.out == "-" else f" to {arguments.out}"))
    return 0


def run_import(arguments: argparse.Namespace) -> int:
    """Exit status 0 if every line is in."""
    import msgspec
    import structlog

    from daemon.cli.output import print_json
    from daemon.ingest.transfer import Options, import_file
    from daemon.settings.reading import load

    # What the connection logs is of no use to a person.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    options = Options(
        kind=arguments.kind, tenant=arguments.tenant, trainable=arguments.trainable, dry_run=arguments.dry_run
    )
    summary = import_file(load(arguments.config, arguments.set), arguments.file, options, say=_say)
    if arguments.json:
        print_json(msgspec.to_builtins(summary))
    else:
        _show(summary, dry=arguments.dry_run)
    return 1 if summary.bad else 0


def _show(summary: Any, *, dry: bool) -> None:
    counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(summary.records.items())) or "nothing"
    print(f"{summary.lines:,} lines: {counted}{', nothing sent' if dry else ''}; {summary.bad:,} bad")
    if summary.redacted:
        print("taken out: " + ", ".join(f"{number:,} {kind}" for kind, number in sorted(summary.redacted.items())))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

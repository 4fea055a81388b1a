"""`evolved replay` on the command line: what the spool still keeps is published once more."""

import argparse
import time
from typing import Any

from daemon.cli.options import json_option

REPLAY_HELP = """\
Publish once more what the spool has published since a time, as far as it is still kept ([shipper] keep_seconds and
keep_bytes). For a broker that lost what it had confirmed and was not found out: after a power failure the daemon does
this by itself as soon as the stream counts again from an earlier number.

examples:
  evolved replay --config config.toml                the last hour, as far as it is kept
  evolved replay --since 90s --json

What the broker and the store still have is recognised by its ids: nothing is doubled. The daemon takes the request
within a second; if it is down, when it starts.

Exit status: 0 asked, 1 nothing is kept, 2 there is no spool.
"""


def add_replay(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("replay", run_replay, "Publish once more what the spool still keeps.")
    command.description, command.formatter_class = REPLAY_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument(
        "--since", default="1h", metavar="TIME", help="90s, 5m, 1h (ago), 2026-05-01T12:30 (UTC), unix seconds (1h)"
    )
    json_option(command)


def run_replay(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 if nothing is kept.

    Raises:
        ConfigError: a time that is none, or there is no spool.
    """
    from daemon.errors import ConfigError
    from daemon.ingest.jsonl_export import moment
    from daemon.settings.config import load
    from daemon.tap.replay import ask_replay
    from daemon.tap.spool_reader import SpoolReader
    from daemon.tap.spools import spools

    config = load(arguments.config, arguments.set)
    since = moment(arguments.since, time.time())
    if not config.spool.is_dir():
        raise ConfigError(f"no spool at {config.spool}: has the tap run? See tap.spool_dir and state_dir")
    segments = size = 0
    for spool in spools(config.spool, config.tap.workers):
        kept, bytes_kept = SpoolReader(spool).kept_since(since)
        if kept:
            try:
                ask_replay(spool, since)
            except OSError as error:
                raise ConfigError(f"{spool}: {error}") from error
        segments, size = segments + kept, size + bytes_kept
    if arguments.json:
        from daemon.cli.output import print_json

        print_json({"since": since, "segments": segments, "bytes": size})
    elif segments:
        print(
            f"asked for: {segments} segments, {size:,} bytes; evolved_shipper_replays_total counts it once it is taken"
        )
    else:
        print("nothing that was published since then is kept any more")
    return 0 if segments else 1

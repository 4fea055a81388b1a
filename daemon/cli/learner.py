"""`evolved learner` on the command line: run it, look into a batch."""

import argparse
import sys
from pathlib import Path
from typing import Any

LEARNER_HELP = """\
Run the learner: batches in, full weights out. Needs the learner extra.

  evolved learner                  run; goes on from the state directory, or begins from model.path
  evolved learner inspect BATCH    show a batch's tokens, coloured by advantage

It reads the newest version against its digests before it begins. Where that is damaged it says so in its log and goes
on from the one before; to keep what that one had learned, stop it and bring the files back from a backup.

`evolved learner inspect --help` tells more.
"""

INSPECT_HELP = """\
Show what an update learns from: each trajectory's tokens, coloured by their advantage (green: made likelier, red: less
likely), what is masked, which step and weight version sampled them, the clip range, and retrieved experience, which is
cut out before the gradient.

BATCH is an order's file, as the curator writes them into STATE_DIR/batches. It holds no advantages: they are computed
now, with your settings, and differ from those that the learner had then if the settings do. Nothing is changed, and
torch is not needed.

examples:
  evolved learner inspect state/batches/0f3a.batch --config config.toml
  evolved learner inspect 0f3a.batch --trajectory sandbox:9c --full | less -R

Text needs a tokenizer: --tokenizer, else model.path's, else the newest version's; without one the ids are
shown. Whoever sees the output sees your agents' prompts and answers.

Exit status: 0 shown, 1 no such trajectory in it, 2 the file is no batch.
"""


def add_learner(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("learner", run_learner, "Run the learner: batches in, full weights out. Needs the learner extra.")
    command.description, command.formatter_class = LEARNER_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", metavar="ACTION")
    inspect = actions.add_parser(
        "inspect",
        help="show a batch's tokens, coloured by advantage",
        description=INSPECT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.set_defaults(run=run_inspect)
    # Without a default of its own: else it would overwrite what stands before the action.
    inspect.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="settings in TOML")
    inspect.add_argument("--set", action="append", default=[], dest="more", metavar="SECTION.KEY=VALUE")
    inspect.add_argument("batch", type=Path, metavar="BATCH")
    inspect.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="directory of tokenizer.json, or the file itself"
    )
    inspect.add_argument("--trajectory", metavar="ID", default="", help="only this one: how its id begins")
    inspect.add_argument("--limit", type=int, default=8, metavar="N", help="trajectories to show, 0 for all (8)")
    inspect.add_argument("--full", action="store_true", help="on the terminal: long contexts too")


def run_learner(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM; the exit status."""
    from daemon.logs import as_service
    from daemon.processes.learner import main as serve

    as_service()
    return serve(_settings(arguments))


def run_inspect(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 if the trajectory that was asked for is not there."""
    from daemon.cli.output import screen
    from daemon.processes.learner_settings import learner
    from learner.checkpoints import Checkpoints
    from learner.inspect import decoder, inspect, known, tokenizer_file
    from learner.inspect_terminal import show

    config = _settings(arguments)
    state = Checkpoints(config.state)
    settings = learner(config)
    tokenizer = tokenizer_file(arguments.tokenizer, settings, state)
    inspection = inspect(
        arguments.batch, settings, known(settings, state), decoder(tokenizer), name=arguments.trajectory,
        limit=arguments.limit,
    )  # fmt: skip
    show(inspection, screen(), full=arguments.full)
    if arguments.trajectory and not inspection.trajectories:
        print(f"no trajectory in it begins with {arguments.trajectory}", file=sys.stderr)
        return 1
    return 0


def _settings(arguments: argparse.Namespace) -> Any:
    from daemon.settings.reading import load

    return load(arguments.config, [*arguments.set, *getattr(arguments, "more", [])])

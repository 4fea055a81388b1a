"""`evolved learner` on the command line: run it, look into a batch, check the state and go on from it."""

import argparse
import sys
from pathlib import Path
from typing import Any

from daemon.cli.options import json_option

LEARNER_HELP = """\
Run the learner: batches in, full weights out. Needs the learner extra.

  evolved learner                  run; goes on from the state directory, or begins from learner.warm_start
  evolved learner resume           first check the state and say where it stands, then run
  evolved learner inspect BATCH    show a batch's tokens, coloured by advantage

`evolved learner inspect --help` and `evolved learner resume --help` tell more.
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

Text needs a tokenizer: --tokenizer, else learner.warm_start's, else the newest version's; without one the ids are
shown. Whoever sees the output sees your agents' prompts and answers.

Exit status: 0 shown, 1 no such trajectory in it, 2 the file is no batch.
"""

RESUME_HELP = """\
Check the state directory before anything runs: every file of the newest version against its digest, the optimizer and
the list of orders that go with it. Then go on from there, exactly as if the learner had never stopped.

examples:
  evolved learner resume --config config.toml
  evolved learner resume --check --json           only look; a learner may be running meanwhile

A plain `evolved learner` also goes on from the newest sound version; but where a newer one is damaged, it says so in
its log and goes on without what that one had learned. This command stops there instead.

Exit status: 2 the state is damaged, or there is none and no warm start; otherwise the learner's own, with --check 0.
"""


def add_learner(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("learner", run_learner, "Run the learner: batches in, full weights out. Needs the learner extra.")
    command.description, command.formatter_class = LEARNER_HELP, argparse.RawDescriptionHelpFormatter
    actions = command.add_subparsers(dest="action", metavar="ACTION")

    def action(name: str, run: Any, text: str, help: str) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=text, description=help, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        made.set_defaults(run=run)
        # Without a default of its own: else it would overwrite what stands before the action.
        made.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="settings in TOML")
        made.add_argument("--set", action="append", default=[], dest="more", metavar="SECTION.KEY=VALUE")
        return made

    inspect = action("inspect", run_inspect, "show a batch's tokens, coloured by advantage", INSPECT_HELP)
    inspect.add_argument("batch", type=Path, metavar="BATCH")
    inspect.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="directory of tokenizer.json, or the file itself"
    )
    inspect.add_argument("--trajectory", metavar="ID", default="", help="only this one: how its id begins")
    inspect.add_argument("--limit", type=int, default=8, metavar="N", help="trajectories to show, 0 for all (8)")
    inspect.add_argument("--full", action="store_true", help="on the terminal: long contexts too")

    resume = action("resume", run_resume, "check the state, say where it stands, then run", RESUME_HELP)
    resume.add_argument("--check", action="store_true", help="do not run")
    json_option(resume)


def run_learner(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM; the exit status."""
    from daemon.logs import as_service
    from daemon.processes.learner import main as serve

    as_service()
    return serve(_settings(arguments))


def run_resume(arguments: argparse.Namespace) -> int:
    """Check, report, run."""
    from daemon.cli.output import print_json
    from daemon.upkeep.provenance import Provenance
    from learner.resume import check

    config = _settings(arguments)
    trusted = Provenance(config.provenance, config.state).trusted("learner")
    found = check(config.state, config.learner, trusted=trusted)
    if arguments.json:
        print_json(found.report())
    else:
        print("\n".join(found.words()), flush=True)
    if found.damage:
        print(f"evolved learner: {found.damage}", file=sys.stderr)
        return 2
    return 0 if arguments.check else run_learner(arguments)


def run_inspect(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 if the trajectory that was asked for is not there."""
    from daemon.cli.output import screen
    from learner.checkpoints import Checkpoints
    from learner.inspect import decoder, inspect, known, tokenizer_file
    from learner.inspect_terminal import show

    config = _settings(arguments)
    state = Checkpoints(config.state)
    tokenizer = tokenizer_file(arguments.tokenizer, config.learner, state)
    inspection = inspect(
        arguments.batch, config.learner, known(config.learner, state), decoder(tokenizer), name=arguments.trajectory,
        limit=arguments.limit,
    )  # fmt: skip
    show(inspection, screen(), full=arguments.full)
    if arguments.trajectory and not inspection.trajectories:
        print(f"no trajectory in it begins with {arguments.trajectory}", file=sys.stderr)
        return 1
    return 0


def _settings(arguments: argparse.Namespace) -> Any:
    from daemon.settings.config import load

    return load(arguments.config, [*arguments.set, *getattr(arguments, "more", [])])

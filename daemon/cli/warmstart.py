"""`evolved warmstart` on the command line: makes a demo's warm-start checkpoint, or says what one can do."""

import argparse
from pathlib import Path
from typing import Any

from daemon.errors import ConfigError


def add_warmstart(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add(
        "warmstart", _warmstart, "Make a demo's warm-start checkpoint from its seed, or measure one.", config=False
    )
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="DIR", help="train, and write the checkpoint there")
    what.add_argument("--measure", type=Path, metavar="DIR", help="train nothing: what can the checkpoint there do?")
    command.add_argument("--world", choices=["travel", "service"], default="travel", help="whose model it is (travel)")
    command.add_argument(
        "--seed", type=int, default=0,
        help="of the training; with --measure of tasks and made names, 0 for those of the recipe (0)",
    )  # fmt: skip
    command.add_argument(
        "--best-of", type=int, nargs="+", default=[], metavar="SEED",
        help="travel: train several, and keep the one that lessons carry best across the demo's drift",
    )  # fmt: skip
    command.add_argument(
        "--start", type=Path, metavar="OLD", help="go on from the checkpoint there, whose vocabulary may be smaller"
    )
    command.add_argument("--attempts", type=int, default=192, metavar="N", help="tasks for each figure (192)")


def _warmstart(arguments: argparse.Namespace) -> int:
    from daemon.cli.output import print_json
    from daemon.processes.warmstart import best_of, measured, run

    def say(text: str) -> None:
        print(text, flush=True)

    if arguments.best_of and (arguments.measure is not None or arguments.world != "travel"):
        raise ConfigError("--best-of trains the travel desk's model: give it --out DIR, and no other --world")
    if arguments.start is not None and (arguments.measure is not None or arguments.best_of):
        raise ConfigError("--start is where one training goes on from: give it --out DIR, and no --best-of")
    if arguments.measure is not None:
        found = measured(arguments.measure, arguments.world, arguments.attempts, arguments.seed)
    elif arguments.best_of:
        found = best_of(arguments.out, arguments.best_of, say)
    else:
        found = run(
            arguments.out, arguments.seed, say, attempts=arguments.attempts, world=arguments.world,
            start=arguments.start,
        )  # fmt: skip
    print_json(found)
    return 0

"""Make a demo's warm-start checkpoint from its seed, or measure one.

python -m tests.warmstart --out DIR --seed 0 [--world service] [--start OLD]
python -m tests.warmstart --world service --measure daemon/demo/service --seed 7    names that nobody has seen
"""

import argparse
import json
from pathlib import Path

from tests.warmstart.courses import ATTEMPTS, COURSES, measured, run


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="DIR", help="train, and write the checkpoint there")
    what.add_argument("--measure", type=Path, metavar="DIR", help="train nothing: what can the checkpoint there do?")
    command.add_argument("--world", choices=list(COURSES), default="travel", help="whose model it is (travel)")
    command.add_argument(
        "--seed", type=int, default=0,
        help="of the training; with --measure of tasks and made names, 0 for those of the recipe (0)",
    )  # fmt: skip
    command.add_argument(
        "--start", type=Path, metavar="OLD", help="go on from the checkpoint there, whose vocabulary may be smaller"
    )
    command.add_argument("--attempts", type=int, default=ATTEMPTS, metavar="N", help=f"for each figure ({ATTEMPTS})")
    told = command.parse_args()
    if told.measure is not None:
        found = measured(told.measure, told.world, told.attempts, told.seed)
    else:
        found = run(
            told.out, told.seed, lambda line: print(line, flush=True), attempts=told.attempts, world=told.world,
            start=told.start,
        )  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

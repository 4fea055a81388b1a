"""Make a demo's warm-start checkpoint from its seed.

python -m tests.warmstart --out DIR --seed 0 [--world service] [--start OLD]
"""

import argparse
from pathlib import Path

from tests.warmstart.courses import COURSES, run


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--out", type=Path, metavar="DIR", required=True, help="where the checkpoint is written")
    command.add_argument("--world", choices=list(COURSES), default="travel", help="whose model it is (travel)")
    command.add_argument("--seed", type=int, default=0, help="of the training (0)")
    command.add_argument("--start", type=Path, metavar="OLD", help="go on from the checkpoint there")
    told = command.parse_args()
    run(told.out, told.seed, lambda line: print(line, flush=True), world=told.world, start=told.start)


if __name__ == "__main__":
    main()

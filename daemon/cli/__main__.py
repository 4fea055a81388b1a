"""`python -m daemon.cli`: `evolved` for who has no console script."""

import sys

from daemon.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

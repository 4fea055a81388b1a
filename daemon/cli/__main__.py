"""`python -m daemon.cli`: the command line where the `evolved` script is not installed."""

import sys

from daemon.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

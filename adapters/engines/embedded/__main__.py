"""`python -m adapters.engines.embedded`: `evolved engine` for who has no console script."""

import sys

from adapters.engines.embedded import main

sys.exit(main())

"""For all unit tests."""

import os

# Before numpy and torch are loaded: several threads on small matrices wait for each other six times as long as they
# compute when others use the cores too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

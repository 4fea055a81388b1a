"""How slow this machine is now."""

import os
import subprocess
import sys
from pathlib import Path

CORES = 2
QUIET_LOOP_SECONDS = 1.0
"""What `_LOOP` takes of a quiet core of the machine that the suites' usual seconds were measured on."""
_LOOP = """
import hashlib, time
began, data = time.perf_counter(), b""
for _ in range(2_800_000):
    data = hashlib.sha256(data).digest()
print(time.perf_counter() - began)
"""


def measure() -> float:
    """How many times slower than quiet all cores are now; 1 at least."""
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP], stdout=subprocess.PIPE) for _ in range(CORES)]
    return max(1.0, max(float(loop.communicate()[0]) for loop in loops) / QUIET_LOOP_SECONDS)


def stolen() -> float:
    """CPU seconds that the host of this machine has given to others since boot (proc(5))."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")

"""What a benchmark's worker processes need and every environment has: timing, memory, one JSON line an answer."""

import json
import os
import resource
import sys
import time
from typing import Any


class Timer:
    """Wall and CPU seconds of one stretch."""

    def start(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self._taken = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]

    def figures(self) -> dict[str, float]:
        return {"wall": self._taken[0], "cpu": self._taken[1]}


def peak_mib() -> float:
    """Largest resident set of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def answer(result: dict[str, Any]) -> None:
    """One line to whoever started this process; libraries that print to stdout cannot get in between."""
    sys.stdout.flush()
    os.write(1, (json.dumps({"answer": result}) + "\n").encode())

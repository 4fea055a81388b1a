"""What a benchmark's worker processes need and every environment has: timing, memory, one JSON line an answer; and the
other end of such a worker."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Any, cast


class Timer:
    """CPU seconds of one stretch."""

    def start(self) -> None:
        self._begun = time.process_time()

    def stop(self) -> None:
        self._taken = time.process_time() - self._begun

    def figures(self) -> dict[str, float]:
        """With the largest resident set of this process so far."""
        return {"cpu": self._taken, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def answer(result: dict[str, Any]) -> None:
    """One line to whoever started this process; libraries that print to stdout cannot get in between."""
    sys.stdout.flush()
    os.write(1, (json.dumps({"answer": result}) + "\n").encode())


class Worker:
    """A process that answers each line."""

    def __init__(self, command: Sequence[object], **variables: str) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | variables,
        )  # fmt: skip

    def ask(self, line: str) -> dict[str, Any]:
        """Its answer; raises RuntimeError if the process is gone."""
        stdin, stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        stdin.write(f"{line}\n")
        stdin.flush()
        for said in stdout:
            if said.startswith('{"answer"'):
                return json.loads(said)["answer"]
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

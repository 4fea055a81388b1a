"""Coverage-guided fuzzing of what reads bytes from outside, by atheris (libFuzzer), in an environment of its own.

    .venv-fuzz/bin/python -m tests.fuzz.run --seconds 110
    .venv-fuzz/bin/python -m tests.fuzz.run --runs 400 --seed 1
    .venv-fuzz/bin/python -m tests.fuzz.run --seconds 36000 --only redaction
    .venv-fuzz/bin/python -m tests.fuzz.one redaction -merge=1 tests/fuzz/corpus/redaction build/fuzz/redaction

Each target has an equal part of the time, in a process of its own, `--lanes` at a time; it begins with the seeds and
with what is kept in tests/fuzz/corpus. An input that crashes, takes more than `TIMEOUT` seconds or more than
`MEMORY_MB` fails the run, and stands under build/fuzz. `-merge=1` puts what reached new code into the corpus.
With `--runs` and a seed the inputs are the same each time: a check must not come out otherwise tomorrow.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from tests.fuzz import targets

HERE = Path(__file__).parent
CORPUS, BUILD = HERE / "corpus", Path("build/fuzz")
LONGEST = 4096
"""Bytes of an input."""
TIMEOUT = 5
"""Seconds for an input of at most `LONGEST` bytes, on a machine that is busy with other things."""
MEMORY_MB = 1024
"""Of a target's process, with all that it imports."""
START_SECONDS = 8.0
"""That a target's process takes until it fuzzes, imports instrumented."""
END = 300.0
"""Seconds beyond its time in which a target's process has to end: on a starved machine imports take minutes."""


def fuzz(target: str, seconds: int, seed: int, runs: int) -> str:
    """Fuzz one target for so long, or so many inputs; what was found, empty if nothing was."""
    fresh = BUILD / target
    fresh.mkdir(parents=True, exist_ok=True)
    for data in targets.seeds(target):
        (fresh / sha256(data).hexdigest()[:16]).write_bytes(data)
    kept = CORPUS / target
    bound = f"-runs={runs}" if runs else f"-max_total_time={seconds}"
    command = [
        sys.executable, "-m", "tests.fuzz.one", target, bound, f"-seed={seed}", f"-max_len={LONGEST}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={BUILD}/{target}-", str(fresh),
        *([str(kept)] if kept.is_dir() else []),
    ]  # fmt: skip
    log = BUILD / f"{target}.log"
    with log.open("wb") as out:
        try:
            environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
            code = subprocess.run(command, stdout=out, stderr=out, timeout=seconds + END, env=environment).returncode
        except subprocess.TimeoutExpired:
            code = "none, it did not end"
    text = log.read_text(errors="replace")
    runs = [line for line in text.splitlines() if "DONE" in line or "cov:" in line][-1:]
    print(f"{target:14} {'ok' if not code else 'FAILED'}  {runs[0].strip() if runs else ''}", flush=True)
    return "" if not code else f"{target}: exit {code}, see {log}\n{text[-3000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=110.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0, help="0: another each time")
    parser.add_argument("--runs", type=int, default=0, help="inputs of each target, instead of --seconds")
    parser.add_argument("--lanes", type=int, default=min(os.cpu_count() or 1, 2), help="processes at once")
    parser.add_argument("--only", choices=targets.TARGETS, action="append")
    told = parser.parse_args()
    names = told.only or list(targets.TARGETS)
    each = max(1, int(told.seconds * told.lanes / len(names) - START_SECONDS))
    began = time.monotonic()
    BUILD.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(told.lanes) as pool:
        found = [one for one in pool.map(lambda name: fuzz(name, each, told.seed, told.runs), names) if one]
    print("\n".join(found))
    share = f"{told.runs} inputs" if told.runs else f"{each} s"
    print(f"{len(names)} targets, {share} each, {time.monotonic() - began:.0f} s in all; {len(found)} failed")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

"""Runs suites in two lanes, what failed once more, and tells how it was. Always ends: the clock decides what is run.

Nothing that was not run is called green: it is told, and comes first the next time. A failure runs again, alone in a
fresh process, up to twice, and is told as flaky if it passed then: a busy machine is no defect. A broken promise
(`@pytest.mark.promise`) that no time-out explains is red at once, and so is a suite that does not load, or with more
than MOST_FAILURES.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slowness import CORES, measure, stolen
from supervisor import MOST_FAILURES, ROOT, Ended, Failure, Order, become_subreaper, kill_descendants, tail

LOGS = ROOT / "build" / "ci"
LEDGER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evolved-ci" / "ledger.jsonl"
LAST_START, CUT_OFF, ALARM = 36 * 60.0, 38.5 * 60.0, 50 * 60.0
"""Seconds from the start: what would end after the first is not begun, at the second all that runs is interrupted, and
at the third the runner says what it knows and is gone."""
TELL_SECONDS = 30.0
_END = b'"seconds": '
MOST_FLAKY, MOST_GOES = 5, 3


@dataclass(frozen=True)
class Suite:
    """Tests that run together.

    Attributes:
        usual: seconds on two quiet cores with its environment made; the ledger knows better.
        tier: 1 runs first, and always; 2 as far as the clock allows.
        cores: 2 runs alone.
        tests: pytest's arguments; empty if `command` is no pytest.
        needs: make's targets that set it up.
        debian: commands that it wants, each with the package that has it.
        watches: beginnings of the paths that it tests; if one has changed, it comes before others.
        must_end: without its end there is no verdict.
        retries: whether what fails may be the machine's fault.
    """

    name: str
    usual: float
    tier: int = 2
    cores: int = 1
    tests: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    python: str = ".venv/bin/python"
    needs: tuple[str, ...] = (".venv/ready",)
    debian: tuple[tuple[str, str], ...] = ()
    watches: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    must_end: bool = False
    retries: bool = True
    hang_seconds: float = 60.0
    pause_seconds: float = 30.0


@dataclass
class Record:
    """What is known of a suite. `verdict` is "green", "red", "cut off" or "not run"; "" while it is open."""

    suite: Suite
    verdict: str = ""
    why: str = ""
    seconds: float = 0.0
    slow: float = 1.0
    passed: int = 0
    skipped: int = 0
    failing: dict[str, Failure] = field(default_factory=dict)
    flaky: dict[str, Failure] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    goes: int = 0


@dataclass
class Job:
    """One go of a suite that runs now."""

    record: Record
    directory: Path
    cores: int
    process: "subprocess.Popen[bytes]"

    def ended(self) -> str:
        """How many tests have."""
        progress = self.directory / "progress.jsonl"
        return f"{progress.read_bytes().count(_END)} tests" if progress.exists() else "begins"


class Runner:
    """Suites, in two lanes.

    Args:
        bounded: the clock decides what is run, as in CI.
        logs: where each suite has a folder of logs.
        ledger: of the runs on this machine; None to keep none.
    """

    def __init__(
        self, suites: Sequence[Suite], *, bounded: bool, logs: Path = LOGS, ledger: Path | None = LEDGER
    ) -> None:
        self.began, self.bounded, self.logs = time.monotonic(), bounded, logs
        self.ledger, self.past = ledger, _read_ledger(ledger)
        self.head = _git("rev-parse", "HEAD")
        self.records = {suite.name: Record(suite) for suite in suites}
        self.slow, self.stolen = 1.0, stolen()
        self.slows: list[float] = []
        self.waiting = sorted(suites, key=self._order)
        self.again: list[Record] = []
        self.running: list[Job] = []
        self.stopped = ""
        self._told = 0.0

    @property
    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def run(self) -> int:
        """Run them and tell; the exit status."""
        become_subreaper()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        if self.bounded:
            signal.signal(signal.SIGALRM, self._give_up)
            signal.setitimer(signal.ITIMER_REAL, ALARM)
        shutil.rmtree(self.logs, ignore_errors=True)
        try:
            self._run()
        finally:  # Ctrl-C and SIGTERM too
            kill_descendants()
        return self._close()

    def _run(self) -> None:
        while self.waiting or self.again or self.running:
            self._start_what_fits()
            time.sleep(0.2)
            for job in [job for job in self.running if job.process.poll() is not None]:
                self.running.remove(job)
                self._take(job)
            if self.bounded and self.clock > CUT_OFF and not self.stopped:
                self._stop("no time")
            if self.running and time.monotonic() > self._told + TELL_SECONDS:
                self._say(", ".join(f"{job.record.suite.name} {job.ended()}" for job in self.running))

    # --- What comes next ---

    def _order(self, suite: Suite) -> tuple[Any, ...]:
        """Tier 1 as it stands. Then those that run alone, what changed, what was not seen for longest, the longest."""
        if suite.tier == 1:
            return (1,)
        seen = [number for number, run in enumerate(self.past) if suite.name in run["ended"]]
        drawn = "" if self.past else hashlib.sha256(f"{self.head} {suite.name}".encode()).hexdigest()
        changed = any(path.startswith(suite.watches) for path in self._changed())
        return (2, suite.cores == 1, not changed, max(seen, default=-1), drawn, -self.usual(suite))

    def _changed(self) -> list[str]:
        since = self.past[-1]["commit"] if self.past else "HEAD~20"
        return _git("diff", "--name-only", since, "HEAD").splitlines()

    def usual(self, suite: Suite) -> float:
        """Seconds that it took lately, on a quiet machine."""
        seen = [run["ended"][suite.name] for run in self.past if suite.name in run["ended"]]
        return statistics.median([line["seconds"] / line["slow"] for line in seen[-5:]] or [suite.usual])

    def _start_what_fits(self) -> None:
        while True:
            busy = sum(job.cores for job in self.running)
            first_tier = any(suite.tier == 1 for suite in self.waiting)
            if self.again and not first_tier:
                if busy:
                    return
                record = self.again.pop(0)
                cores = CORES  # alone
            elif self.waiting:
                # Beside the last of tier 1 runs whatever fits; else none overtakes another, or who wants both waits on.
                some = self.waiting if self._first_tier_runs() and not first_tier else self.waiting[:1]
                suite = next((each for each in some if not busy or busy + each.cores <= CORES), None)
                if suite is None:
                    return
                self.waiting.remove(suite)
                record, cores = self.records[suite.name], suite.cores
            else:
                return
            if why := self.stopped or self._too_late(record):
                record.why = why
                record.verdict = "red" if record.failing else "not run"
                continue
            if not self.running:
                self.slow = measure()
                self.slows.append(self.slow)
            self._start(record, cores)

    def _first_tier_runs(self) -> bool:
        return any(job.record.suite.tier == 1 for job in self.running)

    def _too_late(self, record: Record) -> str:
        if not self.bounded:
            return ""
        takes = 0.0 if record.suite.tier == 1 or record.goes else self.usual(record.suite) * self.slow
        return "no time" if self.clock + takes > (LAST_START if takes else CUT_OFF) else ""

    # --- One go ---

    def _start(self, record: Record, cores: int) -> None:
        suite, first = record.suite, record.goes == 0
        record.goes += 1
        record.slow = self.slow if first else record.slow
        slow = self.slow if first else 2 * self.slow
        whole = first or any(test == "the suite" for test in record.failing)
        order = Order(
            argv=list(suite.command) or [str(ROOT / suite.python), "-m", "pytest", *suite.tests],
            needs=list(suite.needs), tests=bool(suite.tests), environment=dict(suite.environment), slow=slow,
            seconds=3 * self.usual(suite) * slow + 60, hang_seconds=suite.hang_seconds,
            pause_seconds=suite.pause_seconds, only=None if whole else sorted(record.failing),
        )  # fmt: skip
        directory = self.logs / suite.name / str(record.goes)
        directory.mkdir(parents=True)
        (directory / "order.json").write_text(json.dumps(asdict(order)))
        with (directory / "supervisor.log").open("wb") as log:
            command = [sys.executable, str(Path(__file__).with_name("supervisor.py")), str(directory)]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running.append(Job(record, directory, cores, process))
        how = f"begins ({directory.relative_to(ROOT)}/log)" if first else f"again, alone: {', '.join(record.failing)}"
        self._say(f"{suite.name}: {how}")

    def _take(self, job: Job) -> None:
        record, answer = job.record, job.directory / "ended.json"
        if answer.exists():
            ended = Ended.read(answer)
        else:
            ended = Ended("failed", failed={"the suite": Failure("crash", tail(job.directory / "supervisor.log"))})
        record.left += ended.left
        record.passed += ended.passed
        counts = f"{ended.passed} passed, {len(ended.failed)} failed"
        self._say(f"{record.suite.name}: {ended.verdict} after {ended.seconds:.0f} s ({counts})")
        if record.goes == 1:
            record.seconds, record.skipped, record.slowest = ended.seconds, ended.skipped, ended.slowest
            record.why = ended.why
            record.failing = ended.failed
        elif ended.verdict in ("passed", "failed"):
            record.flaky |= {test: told for test, told in record.failing.items() if test not in ended.failed}
            record.failing = ended.failed  # with what else went wrong this time
        self._judge(record, ended)
        if record.suite.name == "check" and record.verdict == "red":
            self._stop("make check is red")

    def _judge(self, record: Record, ended: Ended) -> None:
        defects = [told for told in record.failing.values() if told.kind in ("promise", "collection")]
        if ended.verdict == "no set-up":
            record.verdict = "red" if record.suite.tier == 1 or record.failing else "not run"
            record.why = f"its set-up failed:\n{ended.why}"
        elif defects or (record.failing and (not record.suite.retries or len(record.failing) > MOST_FAILURES)):
            record.verdict = "red"
        elif ended.verdict == "cut off":
            record.verdict = "red" if record.failing else "cut off"  # what failed was not seen to pass
        elif not record.failing:
            record.verdict = "green"
        elif record.goes == MOST_GOES:
            record.verdict = "red"
        else:
            self.again.append(record)

    def _stop(self, why: str) -> None:
        self.stopped = why
        for job in self.running:
            job.process.terminate()

    def _give_up(self, *_: object) -> None:
        self._say(f"over the limit of {ALARM:.0f} s: this is what is known")
        for job in self.running:
            job.record.verdict, job.record.why = "cut off", "the runner's own limit"
            with contextlib.suppress(OSError):
                job.process.kill()
        kill_descendants()
        status = self._close()
        sys.stdout.flush()  # a pipe's buffer would go with the process
        os._exit(status)

    # --- What is told ---

    def _say(self, line: str) -> None:
        self._told = time.monotonic()
        print(f"[{self.clock // 60:2.0f}:{self.clock % 60:02.0f}] {line}", flush=True)

    def _close(self) -> int:
        records = list(self.records.values())
        for record in records:
            record.verdict = record.verdict or "not run"
        self._note_in_ledger(records)
        for record in records:
            for test, told in list(record.failing.items())[:MOST_FAILURES]:
                print(f"\n== RED ({told.kind}) {record.suite.name}: {test}\n{told.why}")
            if len(record.failing) > MOST_FAILURES:
                others = len(record.failing) - MOST_FAILURES
                print(f"\n== RED {record.suite.name}: {others} more, in {self.logs / record.suite.name}")
            for test, told in record.flaky.items():
                print(f"\n== FLAKY ({told.kind}; it passed when it ran again) {record.suite.name}: {test}\n{told.why}")
            if record.why and record.verdict in ("red", "not run") and not record.failing:
                print(f"\n== {record.verdict.upper()} {record.suite.name}: {record.why}")
        self._tell_table(records)
        return self._status(records)

    def _tell_table(self, records: Sequence[Record]) -> None:
        print(f"\n{'suite':14} {'verdict':8} {'tests':>6} {'failed':>6} {'flaky':>5} {'s':>6} {'usual':>6}  remark")
        for record in records:
            suite, remark = record.suite, ""
            if record.verdict == "not run":
                remark = record.why.split("\n")[0]
            elif record.left:
                remark = f"killed at its end: {len(record.left)}, e.g. {record.left[0]}"
            counts = f"{record.passed:6} {len(record.failing):6} {len(record.flaky):5}"
            seconds = f"{record.seconds:6.0f} {self.usual(suite):6.0f}"
            print(f"{suite.name:14} {record.verdict:8} {counts} {seconds}  {remark}")
        slowest = sorted((each for record in records for each in record.slowest), reverse=True)[:10]
        print("slowest: " + "; ".join(f"{test} {seconds:.0f} s" for seconds, test in slowest))
        often = _often_flaky(self.past)
        if often:
            print("flaky in three of the last ten runs, mend or delete: " + "; ".join(often))
        slows = ", ".join(f"{slow:.1f}" for slow in self.slows)
        print(f"slowness {slows}; stolen {stolen() - self.stolen:.0f} CPU seconds; {self.clock:.0f} s in all")

    def _status(self, records: Sequence[Record]) -> int:
        red = [record.suite.name for record in records if record.verdict == "red"]
        open_ = [record.suite.name for record in records if record.verdict in ("not run", "cut off")]
        flaky = sum(len(record.flaky) for record in records)
        missing = [record.suite.name for record in records if record.suite.must_end and record.verdict != "green"]
        bad = bool(red or missing or flaky > MOST_FLAKY)
        if flaky > MOST_FLAKY:
            print(f"RED: {flaky} tests were flaky, more than {MOST_FLAKY}: that is a defect, not the weather")
        if red or missing:
            print(f"RED: {', '.join(dict.fromkeys([*red, *missing]))}")
        if open_:
            print(f"INCOMPLETE: not seen to their end: {', '.join(open_)}")
        failed = sum(len(record.failing) for record in records) + (bad and not red)
        print(f"{sum(record.passed for record in records)} passed, {failed} failed")
        return int(bad)

    def _note_in_ledger(self, records: Iterable[Record]) -> None:
        if self.ledger is None:
            return
        ended = {
            record.suite.name: {
                "verdict": record.verdict, "seconds": round(record.seconds, 1), "slow": round(record.slow, 2),
                "flaky": sorted(record.flaky),
            }
            for record in records if record.verdict in ("green", "red")
        }  # fmt: skip
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        with self.ledger.open("a") as file:
            file.write(json.dumps({"commit": self.head, "at": int(time.time()), "ended": ended}) + "\n")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _read_ledger(path: Path | None) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    if path is not None and path.exists():
        for line in path.read_text().splitlines()[-50:]:
            with contextlib.suppress(ValueError):  # cut off in the middle of a line
                runs.append(json.loads(line))
    return runs


def _often_flaky(runs: Sequence[dict[str, Any]]) -> list[str]:
    seen = [test for run in runs[-10:] for ended in run["ended"].values() for test in ended["flaky"]]
    return sorted({test for test in seen if seen.count(test) >= 3})

"""Whether the tap grows: mixed load at a moderate rate for as long as one likes, and what the process holds meanwhile.

Good and bad agents in turn (plain calls, streams, clients that leave, read slowly or write slowly, oversized and
malformed requests, feedback, pipelines, uploads, engines that die in mid-call) go through a tap process with capture,
token ids and spool on; a thread reads and deletes the spool as the shipper does. Every few seconds memory, descriptors,
connections and the spool's depth are noted. After the warm-up a line is fitted through each of them.

    flat       the upper end of the growth's 95 % interval is within the limit
    not flat   its lower end is above the limit
    open       neither, or growth seen in less than a quarter of an hour: pools, caches and allocators still fill up

    python -m tests.benchmarks.soak --minutes 60 --json build/soak.json
"""

import contextlib
import itertools
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from daemon.tap.spool_reader import SpoolReader
from tests.benchmarks import report
from tests.benchmarks.soak_load import Agents, answer
from tests.support.strict_engine import StrictEngine
from tests.support.tap_process import TapProcess, tap_process

SETTINGS = {
    "request_seconds": 3.0, "keep_alive_seconds": 10.0, "first_byte_seconds": 5.0, "idle_seconds": 3.0,
    "max_body_bytes": 4 << 20, "max_capture_bytes": 1 << 20,
}  # fmt: skip
LIMITS = {
    "memory MB": 4.0,
    "scribe MB": 4.0,
    "descriptors": 10.0,
    "connections": 10.0,
    "spool MB": 8.0,
    "waiting": 10.0,
}
"""Growth an hour that still counts as flat: an allocator's and a page's worth, not a leak's."""
T95 = 1.96
_LEAST_HOURS = 0.25


class Drain:
    """The shipper's part: reads what the tap spools, counts it, and lets it be deleted."""

    def __init__(self, spool: Path) -> None:
        self.records = self.twice = 0
        self._spool, self._stop = spool, threading.Event()
        self._reader = SpoolReader(spool, keep_seconds=5.0)
        self._recent: dict[bytes, None] = {}
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Drain":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    @property
    def disk_bytes(self) -> int:
        """Of the whole spool."""
        total = 0
        for path in self._spool.glob("**/*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def _work(self) -> None:
        while not self._stop.wait(0.5):
            self.take()

    def take(self) -> None:
        """All that is there."""
        while records := self._reader.read():
            for record in records:
                self.twice += record.id in self._recent
                self._recent[record.id] = None
                if len(self._recent) > 10_000:
                    del self._recent[next(iter(self._recent))]
            self.records += len(records)
            self._reader.commit(records[-1].after)
        self._reader.sweep()


# -- what is seen --------------------------------------------------------------------------------------------------


class Sample(msgspec.Struct):
    """What the tap held at a moment."""

    hours: float
    """Since the start."""
    values: dict[str, float]


class Growth(msgspec.Struct):
    """A line through samples."""

    first: float
    last: float
    """Medians of the first and the last quarter."""
    per_hour: float
    half_width: float
    """Of its 95 % interval."""

    def verdict(self, limit: float, hours: float) -> str:
        """flat, not flat or open, after `hours` of samples."""
        if self.per_hour + self.half_width <= limit:
            return "flat"
        return "not flat" if self.per_hour - self.half_width > limit and hours >= _LEAST_HOURS else "open"


def growth(hours: list[float], values: list[float]) -> Growth:
    """Least squares; at least three samples.

    Neighbouring samples are alike (memory moves in steps), so the interval is widened for the autocorrelation of the
    residuals: n becomes n (1 - r) / (1 + r).
    """
    count = len(hours)
    mean_x, mean_y = sum(hours) / count, sum(values) / count
    spread = sum((x - mean_x) ** 2 for x in hours)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(hours, values, strict=True)) / spread
    rest = [y - mean_y - slope * (x - mean_x) for x, y in zip(hours, values, strict=True)]
    square = sum(one * one for one in rest)
    alike = sum(a * b for a, b in itertools.pairwise(rest)) / square if square > 0 else 0.0
    alike = min(max(alike, 0.0), 0.95)
    error = math.sqrt(square / max(1, count - 2) / spread * (1 + alike) / (1 - alike))
    quarter = max(1, count // 4)
    return Growth(_median(values[:quarter]), _median(values[-quarter:]), slope, T95 * error)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def look(tap: TapProcess, drain: Drain) -> dict[str, float]:
    """One sample's values."""
    metrics = tap.metrics()
    return {
        "memory MB": tap.rss() / 2**20,
        "scribe MB": tap.helpers_rss() / 2**20,
        "descriptors": float(tap.descriptors()),
        "connections": metrics["evolved_tap_connections"],
        "spool MB": drain.disk_bytes / 2**20,
        "waiting": metrics["evolved_tap_spool_waiting"],
    }


def soak(options: "Options", say: Callable[[str], None]) -> tuple[list[Sample], dict[str, float], list[str]]:
    """Run the load; returns the samples, figures and examples of surprises."""
    behind = StrictEngine()
    behind.script = answer
    began, samples = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory, tap_process(Path(directory), behind.port, **SETTINGS) as tap:
        used = os.times()
        with (
            Drain(tap.spool) as drain,
            Agents(tap.port, rate=options.rate, threads=options.threads, seed=options.seed) as agents,
        ):
            while (hours := (time.monotonic() - began) / 3600) * 60 < options.minutes:
                time.sleep(options.every)
                behind.asked.clear()
                sample = Sample((time.monotonic() - began) / 3600, look(tap, drain))
                samples.append(sample)
                shown = "  ".join(f"{name} {value:.1f}" for name, value in sample.values.items())
                say(f"{hours * 60:6.1f} min  {sum(agents.done.values())} agents  {shown}")
        # What is under way ends, and the tap writes it down; then the books have to balance.
        time.sleep(SETTINGS["first_byte_seconds"])
        drain.take()
        metrics, seconds, now = tap.metrics(), time.monotonic() - began, os.times()
        taken = metrics["evolved_tap_captured_total"] + metrics['evolved_tap_feedback_total{result="accepted"}']
        shed = sum(value for name, value in metrics.items() if name.startswith("evolved_tap_spool_shed_total"))
        figures = {
            "minutes": seconds / 60,
            "agents": sum(agents.done.values()),
            "surprises": sum(agents.surprises.values()),
            "engine_faults": len(behind.faults),
            "in_flight_left": metrics["evolved_tap_in_flight"],
            "records_taken": taken,
            "records_shed": shed,
            "records_drained": drain.records,
            "records_twice": drain.twice,
            "records_missing": taken - (drain.records - drain.twice),
            "tap_cpu_share": tap.cpu_seconds() / seconds,
            "load_cpu_share": (now.user + now.system - used.user - used.system) / seconds,
        }
    behind.close()
    return samples, figures, [*agents.examples, *behind.faults[:5]]


class Options(msgspec.Struct):
    """Of a run."""

    minutes: float
    rate: float
    threads: int
    every: float
    seed: int


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--rate", type=float, default=60.0, help="agents a second (60)")
    parser.add_argument("--threads", type=int, default=16, help="agents at once (16)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples (10)")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    options = Options(told.minutes, told.rate, told.threads, told.every, told.seed)
    samples, figures, examples = soak(options, lambda text: print(text, flush=True))
    # Pools, caches and the allocator fill up first: a third of the run, at most five minutes.
    warm = min(options.minutes / 3, 5.0) / 60
    kept = [sample for sample in samples if sample.hours >= warm]
    rows, verdicts = [], {}
    for name, limit in LIMITS.items():
        found = growth([sample.hours for sample in kept], [sample.values[name] for sample in kept])
        verdicts[name] = found.verdict(limit, kept[-1].hours - kept[0].hours)
        rows.append((name, found.first, found.last, found.per_hour, found.half_width, limit, verdicts[name]))
        key = name.replace(" ", "_").lower()
        figures[f"{key}_per_hour"], figures[f"{key}_last"] = found.per_hour, found.last
    flat = all(verdict == "flat" for verdict in verdicts.values())
    figures["flat"] = float(flat)
    report.table(
        f"What the tap held, {len(kept)} samples after {warm * 60:.1f} min of warm-up",
        ("", "first quarter", "last quarter", "growth an hour", "+-", "limit", "verdict"),
        rows,
    )
    shown = ((name, value) for name, value in figures.items() if not name.endswith(("_per_hour", "_last")))
    print("  ".join(f"{name} {value:.2f}" for name, value in shown))
    for example in examples:
        print(f"surprise: {example}")
    word = "FLAT" if flat else "NOT FLAT" if "not flat" in verdicts.values() else "OPEN: too short a run to say"
    print(f"{word} (flat: the upper end of the 95 % interval of the growth an hour is within the limit, in all rows)")
    report.write(told.json, "soak", figures, [options.seed])
    sys.exit(0 if word != "NOT FLAT" and not figures["surprises"] and not figures["engine_faults"] else 1)


if __name__ == "__main__":
    main()

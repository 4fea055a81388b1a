"""The figures of `tests.benchmarks.tap`: what was measured, of whom, and how it is told."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from tests.benchmarks.native import Load

DIRECT, NGINX, LITELLM = "direct", "nginx", "litellm"
CAPTURE, IDS, REDACTED = "tap: capture", "tap: + ids", "tap: + redaction"
TAPS = (CAPTURE, IDS, REDACTED)


class Measure(msgspec.Struct, frozen=True):
    """One way to load a target."""

    name: str
    stream: bool
    connections: int
    paced: bool = False
    """The engine takes a pause before every event, as real ones do."""
    turns: int = 1
    """A round. Which core a process wakes on is settled anew with each, and makes half of a latency."""
    share: float = 1.0
    """Of the time that a load lasts."""


PLAIN = Measure("plain c1", False, 1, turns=3, share=0.5)
STREAM = Measure("stream c1", True, 1, share=0.5)
PLAIN_32, STREAM_32 = Measure("plain c32", False, 32), Measure("stream c32", True, 32)
PACED = Measure("paced", True, 8, paced=True)
MEASURES = (PLAIN, STREAM, PLAIN_32, STREAM_32, PACED)


class Row:
    """What a target gave, round by round."""

    def __init__(self) -> None:
        self.loads: dict[Measure, list[Load]] = defaultdict(list)
        self.void: dict[Measure | None, str] = {}
        """The first reason not to believe a measure; under None, any of them."""
        self.shed: dict[Measure, int] = defaultdict(int)
        """Records that a load lost: it was more than is written in that setting, and memory for them is bounded."""
        self.behind = 0.0
        """Seconds that the spool was behind at most."""
        self.own_us: list[float] = []
        """Its own time on a plain call at low load, by its own account: total minus upstream."""
        self.calls = 0
        self.lost = 0
        """Calls without a record that nobody counted as shed."""

    def spoil(self, measure: Measure | None, why: str) -> None:
        self.void.setdefault(measure, why)

    def sound(self, measure: Measure) -> bool:
        return None not in self.void and measure not in self.void

    def values(self, measure: Measure, read: Callable[[Load], float]) -> list[float]:
        """One a round; no numbers, if they are not to be believed."""
        return [read(load) if self.sound(measure) else float("nan") for load in self.loads[measure]]

    def median(self, measure: Measure, read: Callable[[Load], float]) -> float:
        return statistics.median(self.values(measure, read))


def p50(load: Load) -> float:
    return load.total_us.p50 if load.total_us else float("nan")


def p99(load: Load) -> float:
    return load.total_us.p99 if load.total_us else float("nan")


def first(load: Load) -> float:
    """Microseconds to the first byte of the body, median."""
    return load.first_us.p50 if load.first_us else float("nan")


def rate(load: Load) -> float:
    return load.rps


def ratio(one: Row, other: Row, measure: Measure) -> float:
    """How many times as many requests a second `one` passes: the median of the rounds' ratios."""
    pairs = zip(one.values(measure, rate), other.values(measure, rate), strict=True)
    return statistics.median(a / b if b else float("nan") for a, b in pairs)


def added(one: Row, other: Row, measure: Measure, read: Callable[[Load], float]) -> float:
    """Microseconds on top of `other`: the median of the rounds' differences."""
    pairs = zip(one.values(measure, read), other.values(measure, read), strict=True)
    return statistics.median(a - b for a, b in pairs)


def figures(rows: Mapping[str, Row]) -> dict[str, float]:
    """What is claimed; without the figures of void measures."""
    found: dict[str, float] = {}

    def claim(key: str, names: tuple[str, ...], read: Callable[..., float]) -> None:
        if all(name in rows for name in names) and not math.isnan(value := read(*(rows[name] for name in names))):
            found[key] = value

    claim("direct_vs_nginx", (DIRECT, NGINX), lambda a, b: ratio(a, b, PLAIN_32))
    for suffix, name in (("", IDS), ("_capture_alone", CAPTURE), ("_redacted", REDACTED), ("_nginx", NGINX)):
        claim(f"added_p50_us{suffix}", (name, DIRECT), lambda a, b: added(a, b, PLAIN, p50))
        claim(f"added_p99_us{suffix}", (name, DIRECT), lambda a, b: added(a, b, PLAIN, p99))
        claim(f"added_stream_first_us{suffix}", (name, DIRECT), lambda a, b: added(a, b, PACED, first))
    for peer, label in ((NGINX, "nginx"), (LITELLM, "litellm")):
        for prefix, name in (("", CAPTURE), ("hidden_", IDS), ("hidden_redacted_", REDACTED)):
            claim(f"plain_{prefix}vs_{label}", (name, peer), lambda a, b: ratio(a, b, PLAIN_32))
            claim(f"stream_{prefix}vs_{label}", (name, peer), lambda a, b: ratio(a, b, STREAM_32))
    claim("own_time_mean_us", (IDS,), lambda a: statistics.median(a.own_us) if a.own_us else float("nan"))
    found["calls_tapped"] = sum(rows[name].calls for name in TAPS)
    found["calls_lost"] = sum(rows[name].lost for name in TAPS)
    return found


def show(rows: Mapping[str, Row]) -> None:
    """A line for each target: microseconds of one call at a time and to the first byte of a paced stream, then 32
    connections; no number where a measure is void."""
    for name, row in rows.items():
        low = "".join(f"{row.median(PLAIN, read):9,.0f}" for read in (p50, p99))
        high = "".join(f"{row.median(measure, rate):11,.0f}/s" for measure in (PLAIN_32, STREAM_32))
        kept = f"calls {row.calls:,}, shed {sum(row.shed.values())}, lost {row.lost}, behind {row.behind:.1f} s"
        print(f"{name:<18} p50, p99{low}; first{row.median(PACED, first):9,.0f}; plain, stream{high}; {kept}")

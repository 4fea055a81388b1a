"""What the tap costs, beside a proxy that only passes on (Debian's nginx) and one that does more (LiteLLM's).

    python -m tests.benchmarks.tap [--json FILE] [--rounds 5] [--seconds 3] [--seed 0] [--no-litellm]

One run, one worker each, one compiled engine behind all of them and one compiled load in front (`native/`): direct,
nginx, the tap in three settings, LiteLLM. Every round measures all of them in random order, so that what the machine
does meanwhile hits all alike; figures are medians over the rounds, ratios and differences medians of each round's own.

    capture      every call copied into the spool; token ids not asked for, redaction off
    + ids        log-probs and token ids asked for, kept, and hidden from the client
    + redaction  the same, and records are searched for secrets before they are written: as it is shipped

What is checked, else the measure is void: no error in any call, answers of the same length as the direct ones, no
record shed, and in the end as many records in the spool as calls were sent. The tap writes behind; before anybody
else's turn it is waited for, and how long that took is shown. When direct is not at least twice as fast as nginx, the
load or the engine was what the run measured: it is void as a whole. A void measure or run ends in exit status 1.

LiteLLM also does routing, keys and cost accounting: its ratio says what a pass-through saves, not how good it is.
"""

import contextlib
import json
import math
import random
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import Exchange, decode
from daemon.tap.spool import SpoolReader
from tests.benchmarks import peers, report
from tests.benchmarks.native import Load, Native, NativeError
from tests.support.tap_process import TapProcess, tap_process

BUILD = Path(__file__).parents[2] / "build"
DIRECT, NGINX, LITELLM = "direct", "nginx", "litellm"
CAPTURE, IDS, REDACTED = "tap: capture", "tap: + ids", "tap: + redaction"
SETTINGS: dict[str, tuple[bool, dict[str, Any]]] = {
    CAPTURE: (False, {"kinds": ()}),
    IDS: (True, {"kinds": ()}),
    REDACTED: (True, {}),
}
"""Whether token ids are asked for, and the settings of the redaction."""
LEAST_DIRECT = 2.0
"""Times nginx that direct must reach on plain calls."""
BEHIND_SECONDS = 30.0
PROMPT_BYTES = 1_000
PAUSE_SECONDS = 0.2
"""After each load: some proxies finish a call's paperwork after its answer."""
WARM_UP = 50


class Measure(msgspec.Struct, frozen=True):
    """One way to load a target."""

    name: str
    stream: bool
    connections: int
    turns: int = 1
    """A round. Which core a process wakes on is settled anew with each, and makes half of a latency."""
    share: float = 1.0
    """Of the time that a load lasts."""


PLAIN = Measure("plain c1", False, 1, turns=3, share=0.5)
PLAIN_32, STREAM_32 = Measure("plain c32", False, 32), Measure("stream c32", True, 32)
MEASURES = (PLAIN, PLAIN_32, STREAM_32)


class Row:
    def __init__(self) -> None:
        self.loads: dict[Measure, list[Load]] = defaultdict(list)
        self.void: dict[Measure | None, str] = {}
        """The first reason not to believe a measure; under None, any of them."""
        self.behind = 0.0
        """Seconds that the spool was behind at most."""
        self.calls = self.shed = self.lost = 0
        """All; those whose record the tap counted as shed; those without a record that nobody counted."""

    def spoil(self, measure: Measure | None, why: str) -> None:
        self.void.setdefault(measure, why)

    def values(self, measure: Measure, read: Callable[[Load], float]) -> list[float]:
        """One a round; no numbers, if they are not to be believed."""
        sound = None not in self.void and measure not in self.void
        return [read(load) if sound else math.nan for load in self.loads[measure]]

    def median(self, measure: Measure, read: Callable[[Load], float]) -> float:
        return statistics.median(self.values(measure, read))


class Target(msgspec.Struct):
    name: str
    port: int
    tap: TapProcess | None = None
    sent: int = 0
    """Calls so far, in this round."""
    shed: int = 0
    """Records that its tap has counted as shed."""


def bodies(directory: Path, rng: random.Random) -> dict[Measure, Path]:
    """The requests of the measures: an agent's prose, with nothing to redact in it."""
    found: dict[Measure, Path] = {}
    for number, measure in enumerate(MEASURES):
        text = ""
        while len(text) < PROMPT_BYTES:
            text += f"Leg {rng.randrange(100)}: Bergen to Oslo at {rng.randrange(24)}:30, seat {rng.randrange(30)} F.\n"
        system = {"role": "system", "content": "You are the travel desk. Answer briefly."}
        messages = [system, {"role": "user", "content": text[:PROMPT_BYTES]}]
        body = json.dumps({"model": "bench", "messages": messages, "stream": measure.stream, "user": "agent"})
        found[measure] = directory / f"{number}.json"
        found[measure].write_text(body, encoding="utf-8")
    return found


class Bench:
    """The run; `seconds` are those of each timed load, `key` is sent to everybody: all get the same requests."""

    def __init__(self, native: Native, directory: Path, *, seconds: float, key: str, rng: random.Random) -> None:
        self._native, self._directory, self._seconds, self._rng = native, directory, seconds, rng
        self._headers = {"Authorization": f"Bearer {key}"}
        self._bodies = bodies(directory, rng)
        self.rows: dict[str, Row] = defaultdict(Row)

    def round(self, engine_port: int, standing: Mapping[str, int]) -> None:
        """All measures of all targets, once. Taps are started anew, so that each round's spool is counted and goes;
        `standing` are the ports of those that stay up from round to round."""
        targets = [Target(name, port) for name, port in standing.items()]
        with contextlib.ExitStack() as stack:
            for name, (tokens, redaction) in SETTINGS.items():
                folder = Path(tempfile.mkdtemp(dir=self._directory))
                settings = {"capture_tokens": tokens, "drain_seconds": 5.0}
                tap = stack.enter_context(tap_process(folder, engine_port, redaction=redaction, **settings))
                targets.append(Target(name, tap.port, tap))
            for target in targets:
                for measure in (PLAIN, STREAM_32):
                    self._load(target, measure, requests=WARM_UP)
            turns = [measure for measure in MEASURES for _ in range(measure.turns)]
            self._rng.shuffle(turns)
            for measure in turns:
                for target in self._rng.sample(targets, len(targets)):
                    self.rows[target.name].loads[measure].append(self._load(target, measure))
        for target in targets:
            self._count(target)

    def _load(self, target: Target, measure: Measure, *, requests: int = 0) -> Load:
        row = self.rows[target.name]
        load = self._native.load(
            target.port,
            self._bodies[measure],
            stream=measure.stream,
            connections=measure.connections,
            seconds=0.0 if requests else self._seconds * measure.share,
            requests=requests,
            headers=self._headers,
        )
        target.sent += load.sent
        if load.errors or not load.requests:
            row.spoil(measure, f"{load.errors} errors of {load.sent}, first: {load.problem}")
        time.sleep(PAUSE_SECONDS)
        if target.tap and None not in row.void:
            self._settle(target, target.tap, measure)
        return load

    def _settle(self, target: Target, tap: TapProcess, measure: Measure) -> None:
        """Wait until all records are on disk, or counted as shed."""
        row, began = self.rows[target.name], time.monotonic()
        while True:
            metrics, took = tap.metrics(), time.monotonic() - began
            shed = sum(int(value) for name, value in metrics.items() if name.startswith("evolved_tap_spool_shed_total"))
            records = int(metrics.get("evolved_tap_spool_written_total", 0)) + shed
            if records >= target.sent or took >= BEHIND_SECONDS:
                break
            time.sleep(0.02)
        row.behind = max(row.behind, took)
        if records < target.sent:
            row.spoil(None, f"{measure.name}: {records} of {target.sent} records {BEHIND_SECONDS:.0f} s after")
        if shed > target.shed:
            row.spoil(measure, f"{shed - target.shed} records shed: more than is written in this setting")
            row.shed += shed - target.shed
            target.shed = shed

    def _count(self, target: Target) -> None:
        """Count what the tap of this round kept, and delete it."""
        row = self.rows[target.name]
        row.calls += target.sent
        if target.tap is None:
            return
        ids, problems, with_ids = list[bytes](), Counter[str](), 0
        reader = SpoolReader(target.tap.spool)
        while found := reader.read():
            for record in found:
                exchange = decode(record.payload)
                assert isinstance(exchange, Exchange)
                ids.append(record.id)
                with_ids += bool(exchange.response_ids)
                if not exchange.complete or exchange.status != 200:
                    problems[exchange.error or f"status {exchange.status}"] += 1
        shutil.rmtree(target.tap.spool, ignore_errors=True)
        row.lost += target.sent - len(ids) - target.shed
        doubled = len(ids) - len(set(ids))
        if len(ids) + target.shed != target.sent or doubled:
            row.spoil(None, f"{len(ids)} records of {target.sent} calls, {target.shed} shed, {doubled} doubled")
        if problems:
            row.spoil(None, f"records with problems: {dict(problems)}")
        if with_ids != (wanted := len(ids) if SETTINGS[target.name][0] else 0):
            row.spoil(None, f"{with_ids} records with token ids of {wanted}")

    def compare_lengths(self) -> None:
        """What passes answers through must pass all of them, and nothing else."""
        for measure in MEASURES:
            direct = {load.body_bytes_min for load in self.rows[DIRECT].loads[measure]}
            for name, row in self.rows.items():
                lengths = {
                    length for load in row.loads[measure] for length in (load.body_bytes_min, load.body_bytes_max)
                }
                if name != LITELLM and lengths - direct:
                    row.spoil(measure, f"bodies of {sorted(lengths)} bytes, not as the direct ones")


def p50(load: Load) -> float:
    return load.total_us.p50 if load.total_us else math.nan


def p99(load: Load) -> float:
    return load.total_us.p99 if load.total_us else math.nan


def rate(load: Load) -> float:
    return load.rps


def figures(rows: Mapping[str, Row]) -> dict[str, float]:
    """What is claimed: medians of the rounds' ratios and differences; without the figures of void measures."""
    found: dict[str, float] = {}

    def claim(key: str, one: str, other: str, measure: Measure, read: Callable[[Load], float]) -> None:
        if one in rows and other in rows:
            pairs = zip(rows[one].values(measure, read), rows[other].values(measure, read), strict=True)
            if read is rate:
                value = statistics.median(a / b if b else math.nan for a, b in pairs)
            else:
                value = statistics.median(a - b for a, b in pairs)
            if not math.isnan(value):
                found[key] = value

    claim("direct_vs_nginx", DIRECT, NGINX, PLAIN_32, rate)
    for suffix, name in (("", IDS), ("_capture_alone", CAPTURE), ("_redacted", REDACTED), ("_nginx", NGINX)):
        claim(f"added_p50_us{suffix}", name, DIRECT, PLAIN, p50)
        claim(f"added_p99_us{suffix}", name, DIRECT, PLAIN, p99)
    for peer in (NGINX, LITELLM):
        for prefix, name in (("", CAPTURE), ("hidden_", IDS), ("hidden_redacted_", REDACTED)):
            claim(f"plain_{prefix}vs_{peer}", name, peer, PLAIN_32, rate)
            claim(f"stream_{prefix}vs_{peer}", name, peer, STREAM_32, rate)
    found["calls_tapped"] = sum(rows[name].calls for name in SETTINGS)
    found["calls_lost"] = sum(rows[name].lost for name in SETTINGS)
    return found


def show(rows: Mapping[str, Row]) -> None:
    """A line for each target: microseconds of one call at a time, then 32 connections; no number where a measure is
    void, and why."""
    for name, row in rows.items():
        low = "".join(f"{row.median(PLAIN, read):9,.0f}" for read in (p50, p99))
        high = "".join(f"{row.median(measure, rate):11,.0f}/s" for measure in (PLAIN_32, STREAM_32))
        kept = f"calls {row.calls:,}, shed {row.shed}, lost {row.lost}, behind {row.behind:.1f} s"
        print(f"{name:<18} p50, p99{low}; plain, stream{high}; {kept}")
        for measure, why in row.void.items():
            print(f"VOID {name}, {measure.name if measure else 'all of it'}: {why}")


def main() -> int:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each timed load (3)")
    parser.add_argument("--seed", type=int, default=0, help="of the order and the prompts")
    parser.add_argument("--no-litellm", action="store_true")
    options = parser.parse_args()
    # So that what was started is ended: a signal alone would leave it running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}, {options.rounds} rounds, load average {report.machine()['load']}", flush=True)
    key = f"sk-{secrets.token_hex(16)}"
    BUILD.mkdir(exist_ok=True)
    try:
        native = Native(BUILD / "native")
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=BUILD)))
            engine_port = stack.enter_context(native.engine())
            ports = {DIRECT: engine_port, NGINX: stack.enter_context(peers.nginx(engine_port, directory / "nginx"))}
            if not options.no_litellm:
                ports[LITELLM] = stack.enter_context(peers.litellm(engine_port, directory / "litellm", key))
            bench = Bench(native, directory, seconds=options.seconds, key=key, rng=random.Random(options.seed))
            for number in range(options.rounds):
                bench.round(engine_port, ports)
                print(f"round {number + 1} of {options.rounds}, {report.machine()['load']}", flush=True)
    except (peers.PeerError, NativeError) as error:
        sys.exit(str(error))
    bench.compare_lengths()
    show(bench.rows)
    claims = figures(bench.rows)
    for key, value in claims.items():
        print(f"{key} {value:.2f}")
    report.write(options.json, "tap", claims, [options.seed])
    if claims.get("direct_vs_nginx", 0.0) < LEAST_DIRECT:
        print(f"VOID: direct is not {LEAST_DIRECT:.0f} times nginx on plain calls; the load was what this run measured")
        return 1
    return 1 if any(row.void for row in bench.rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

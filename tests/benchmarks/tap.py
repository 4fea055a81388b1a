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
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tests.benchmarks import peers, report
from tests.benchmarks.native import Load, Native, NativeError
from tests.benchmarks.tap_figures import (
    CAPTURE,
    DIRECT,
    IDS,
    LITELLM,
    MEASURES,
    NGINX,
    PLAIN,
    REDACTED,
    STREAM,
    Measure,
    Row,
    figures,
    show,
)
from tests.benchmarks.tapped import Tapped, count, tapped

BUILD = Path(__file__).parents[2] / "build"
SETTINGS: dict[str, tuple[bool, dict[str, object]]] = {
    CAPTURE: (False, {"enabled": False}),
    IDS: (True, {"enabled": False}),
    REDACTED: (True, {}),
}
"""Whether token ids are asked for, and the settings of the redaction."""
LEAST_DIRECT = 2.0
"""Times nginx that direct must reach on plain calls."""
BEHIND_SECONDS = 30.0
PACE_US = 1_000
PROMPT_BYTES = 1_000
PACED_USER = "paced"
"""The `user` of requests whose stream the engine paces: a field that every proxy passes on."""
PAUSE_SECONDS = 0.2
"""After each load: some proxies finish a call's paperwork after its answer."""
WARM_UP = 50


class Target(msgspec.Struct):
    """Who is measured."""

    name: str
    port: int
    tap: Tapped | None = None
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
        user = PACED_USER if measure.paced else "agent"
        body = json.dumps({"model": "bench", "messages": messages, "stream": measure.stream, "user": user})
        found[measure] = directory / f"{number}.json"
        found[measure].write_text(body, encoding="utf-8")
    return found


class Bench:
    """The run."""

    def __init__(self, native: Native, directory: Path, *, seconds: float, key: str, rng: random.Random) -> None:
        """
        Args:
            seconds: of each timed load.
            key: sent to everybody, so that all get the same requests.
        """
        self._native, self._directory, self._seconds, self._rng = native, directory, seconds, rng
        self._headers = {"Authorization": f"Bearer {key}"}
        self._bodies = bodies(directory, rng)
        self.rows: dict[str, Row] = defaultdict(Row)

    def round(self, engine_port: int, standing: Mapping[str, int]) -> None:
        """All measures of all targets, once. Taps are started anew, so that each round's spool is counted and goes.

        Args:
            standing: ports of the targets that stay up from round to round, by name.
        """
        targets = [Target(name, port) for name, port in standing.items()]
        with contextlib.ExitStack() as stack:
            for name, (tokens, redaction) in SETTINGS.items():
                spool = Path(tempfile.mkdtemp(dir=self._directory)) / "spool"
                tap = stack.enter_context(tapped(engine_port, spool, capture_tokens=tokens, redaction=redaction))
                targets.append(Target(name, tap.port, tap))
            for target in targets:
                for measure in (PLAIN, STREAM):
                    self._load(target, measure, requests=WARM_UP)
            turns = [measure for measure in MEASURES for _ in range(measure.turns)]
            self._rng.shuffle(turns)
            for measure in turns:
                for target in self._rng.sample(targets, len(targets)):
                    self._measure(target, measure)
        for target in targets:
            self._settle(target)

    def _measure(self, target: Target, measure: Measure) -> None:
        row, tap = self.rows[target.name], target.tap
        before = tap.overhead() if tap else None
        row.loads[measure].append(self._load(target, measure))
        if tap and before and measure is PLAIN:
            calls, seconds = (now - then for now, then in zip(tap.overhead(), before, strict=True))
            if calls:
                row.own_us.append(seconds / calls * 1e6)

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
            limit_seconds=self._seconds + 120,
        )
        target.sent += load.sent
        if load.errors or not load.requests:
            row.spoil(measure, f"{load.errors} errors of {load.sent}, first: {load.problem}")
        time.sleep(PAUSE_SECONDS)
        if target.tap and None not in row.void:
            settled = target.tap.await_settled(target.sent, BEHIND_SECONDS)
            row.behind = max(row.behind, settled.seconds)
            if settled.records < target.sent:
                row.spoil(
                    None, f"{measure.name}: {settled.records} of {target.sent} records {BEHIND_SECONDS:.0f} s after"
                )
            if shed := settled.shed - target.shed:
                target.shed = settled.shed
                row.shed[measure] += shed
                row.spoil(measure, f"{shed} of {load.sent} records shed: more than is written in this setting")
        return load

    def _settle(self, target: Target) -> None:
        """Count what the tap of this round kept, and delete it."""
        row = self.rows[target.name]
        row.calls += target.sent
        if target.tap is None:
            return
        kept = count(target.tap.spool)
        row.lost += target.sent - kept.records - target.shed
        wanted = kept.records if SETTINGS[target.name][0] else 0
        if kept.records + target.shed != target.sent or kept.doubled:
            row.spoil(
                None, f"{kept.records} records of {target.sent} calls, {target.shed} shed, {kept.doubled} doubled"
            )
        if kept.problems:
            row.spoil(None, f"records with problems: {kept.problems}")
        if kept.with_ids != wanted:
            row.spoil(None, f"{kept.with_ids} records with token ids of {wanted}")

    def compare_lengths(self) -> None:
        """What passes answers through must pass all of them, and nothing else."""
        for name, row in self.rows.items():
            for measure in MEASURES:
                lengths = {(load.body_bytes_min, load.body_bytes_max) for load in row.loads[measure]}
                if name != LITELLM and lengths - {
                    (one.body_bytes_min,) * 2 for one in self.rows[DIRECT].loads[measure]
                }:
                    row.spoil(measure, f"bodies of {sorted(lengths)} bytes, not as the direct ones")


@contextlib.contextmanager
def standing(engine_port: int, directory: Path, *, key: str, with_litellm: bool) -> Iterator[dict[str, int]]:
    """The targets that stay up through the run."""
    with contextlib.ExitStack() as stack:
        ports = {DIRECT: engine_port, NGINX: stack.enter_context(peers.nginx(engine_port, directory / "nginx"))}
        versions = f"nginx {peers.nginx_version()}"
        if with_litellm:
            ports[LITELLM] = stack.enter_context(peers.litellm(engine_port, directory / "litellm", key))
            versions += f", litellm {peers.litellm_version()}"
        print(versions, flush=True)
        yield ports


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
        with (
            tempfile.TemporaryDirectory(dir=BUILD) as name,
            native.engine(pace_us=PACE_US, pace_when=f'"{PACED_USER}"') as engine_port,
        ):
            directory = Path(name)
            rng = random.Random(options.seed)
            bench = Bench(native, directory, seconds=options.seconds, key=key, rng=rng)
            with standing(engine_port, directory, key=key, with_litellm=not options.no_litellm) as ports:
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
    for name, row in bench.rows.items():
        for measure, why in row.void.items():
            print(f"VOID {name}, {measure.name if measure else 'all of it'}: {why}")
    report.write(options.json, "tap", claims, [options.seed])
    if claims.get("direct_vs_nginx", 0.0) < LEAST_DIRECT:
        print(f"VOID: direct is not {LEAST_DIRECT:.0f} times nginx on plain calls; the load was what this run measured")
        return 1
    return 1 if any(row.void for row in bench.rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

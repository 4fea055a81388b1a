"""How soon the sentinel finds what was planted: simulated streams, no engine.

    python -m tests.benchmarks.sentinel --seeds 200 --json build/sentinel.json

Each seed is one swap: 200 runs of a middling agent, then up to 384 of a changed one. The delay is the number of runs
under the new version when the monitor spoke up. How often equal versions are accused is `sentinel_equal`'s.
"""

import math
import statistics

import msgspec

from tests.benchmarks import report
from tests.support.behaviour import Behaviour, stream

BEFORE, AFTER = 200, 384
USUAL = Behaviour()
PLANTED: list[tuple[str, str, dict[str, object]]] = [
    ("judge +0.25, outcome flat", "hacking", {"good": (0.8, 0.99)}),
    ("outcome -0.2", "outcomes", {"success": 0.5}),
    ("outcome -0.4", "outcomes", {"success": 0.3}),
    ("outcome -0.7", "outcomes", {"success": 0.0}),
    ("invalid calls 2 % -> 15 %", "validity", {"invalid": 0.15}),
    ("invalid calls 2 % -> 30 %", "validity", {"invalid": 0.3}),
    ("length x1.6", "length", {"length": 64.0}),
    ("steps x2", "steps", {"steps": 10.0}),
    ("questions 10 % -> 30 %", "questions", {"asks": 0.3}),
    ("circles 2 % -> 20 %", "loops", {"loops": 0.2}),
]


def found_after(seed: int, changed: dict[str, object], cause: str) -> float:
    """Runs after the swap at which `cause` was found; infinity if it was not."""
    how = msgspec.structs.replace(USUAL, **changed)
    for version, count, finding in stream(seed, [(USUAL, BEFORE), (how, AFTER)]):
        if version and finding.cause == cause:
            return count
    return math.inf


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=200, help="swaps a row")
    args = parser.parse_args()
    seeds, figures = range(args.seeds), dict[str, float]()
    rows: list[tuple[object, ...]] = []
    for name, cause, changed in PLANTED:
        delays = sorted(found_after(seed, changed, cause) for seed in seeds)
        middle, most = statistics.median_low(delays), delays[math.ceil(0.9 * len(delays)) - 1]
        share = sum(map(math.isfinite, delays)) / args.seeds
        figures |= {f"found, {name}": share, f"median, {name}": middle, f"p90, {name}": most}
        rows.append((name, cause, f"{share:.0%}", middle, most))
    report.table(
        f"Runs until found, {BEFORE} runs before the swap, {args.seeds} seeds",
        ("planted", "found by", "found", "median", "90 %"),
        rows,
    )
    report.write(args.json, "sentinel", {key: value for key, value in figures.items() if math.isfinite(value)}, seeds)


if __name__ == "__main__":
    main()

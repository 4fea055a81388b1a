"""How well the reader of tool answers tells failed calls from others, on answers of sources that it was not built on.

    python -m tests.benchmarks.tool_results --json build/tool_results.json

The cases are `tests/data/tool_results`: excerpts of APIs' documentation, MCP servers, agent frameworks and runtimes,
labelled by hand or by the HTTP status of their source, in a part to build on and two of sources that the reader was not
built on (README.md there); the figures that are written are of these two. Precision and recall are those of "failed".
The interval is Wilson's, at 95 %.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from actors.ports.tool_answers.reader import failed
from actors.statistics.intervals import wilson
from tests.benchmarks import report

_FROZEN = "unseen sources"
CASES = Path(__file__).parents[1] / "data" / "tool_results"


class Case(msgspec.Struct, frozen=True):
    """An answer of a tool, and what a person says of it."""

    source: str
    at: str
    kind: str
    label: str
    text: str
    rendered: bool = False


def load(part: str) -> list[Case]:
    """The cases of `part`: "build", "unseen", "later", "strange", "blind" or "guests"."""
    lines = (CASES / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Case) for line in lines]


def measure(cases: Iterable[Case]) -> tuple[int, int, int]:
    """How many failed calls were found, which there were, and how many were said to be."""
    pairs = [(failed(case.text), case.label == "failed") for case in cases]
    return sum(said and true for said, true in pairs), sum(true for _, true in pairs), sum(said for said, _ in pairs)


def main() -> None:
    args = report.arguments("Reader of tool answers: precision and recall of failed calls").parse_args()
    figures: dict[str, float] = {}
    rows: list[tuple[object, ...]] = []
    parts = {part: load(part) for part in ("unseen", "later", "build", "strange", "blind", "guests")}
    for part, cases in {_FROZEN: parts["unseen"] + parts["later"], **parts}.items():
        kinds = sorted({case.kind for case in cases})
        for kind in ("", *kinds):
            own = [case for case in cases if not kind or case.kind == kind]
            hits, bad, said = measure(own)
            low, high = wilson(hits, bad)
            precision, recall = (hits / of if of else float("nan") for of in (said, bad))
            told = f"{recall:.3f} [{low:.3f}, {high:.3f}]"
            rows.append((f"{part} {kind}".strip(), len(own), bad, f"{precision:.3f}", told))
            if part == _FROZEN:
                end = f"_{kind}" if kind else ""
                figures |= {f"cases{end}": len(own)}
                if bad:
                    figures |= {f"precision_failed{end}": precision, f"recall_failed{end}": recall}
    report.table("Tool answers", ("part", "cases", "failed", "precision", "recall"), rows)
    report.write(args.json, "tool_results", figures)


if __name__ == "__main__":
    main()

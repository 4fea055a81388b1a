"""How well the reader of tool answers tells failed calls from others, on answers of sources that it was not built on.

    python -m tests.benchmarks.tool_results --json build/tool_results.json

The cases are `tests/data/tool_results`: excerpts of APIs' documentation, MCP servers, agent frameworks and runtimes,
labelled by hand or by the HTTP status of their source, in a part to build on and two of sources that the reader was not
built on (README.md there); the figures that are written are of these two. Precision and recall are those of "failed";
an `unknown` counts as not failed. The interval is Wilson's, at 95 %.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from actors.ports.tool_answers.reader import read
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


class Figures(msgspec.Struct):
    cases: int = 0
    hits: int = 0
    false_alarms: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        return self.hits / (self.hits + self.false_alarms) if self.hits + self.false_alarms else float("nan")

    @property
    def recall(self) -> float:
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else float("nan")


def load(part: str) -> list[Case]:
    """The cases of `part`: "build", "unseen" or "later"."""
    lines = (CASES / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Case) for line in lines]


def measure(cases: Iterable[Case]) -> Figures:
    figures = Figures()
    for case in cases:
        verdict = read(case.text)
        figures.cases += 1
        figures.hits += verdict == case.label == "failed"
        figures.false_alarms += verdict == "failed" != case.label
        figures.missed += verdict != "failed" == case.label
    return figures


def main() -> None:
    args = report.arguments("Reader of tool answers: precision and recall of failed calls").parse_args()
    figures: dict[str, float] = {}
    rows: list[tuple[object, ...]] = []
    parts = {part: load(part) for part in ("unseen", "later", "build")}
    for part, cases in {_FROZEN: parts["unseen"] + parts["later"], **parts}.items():
        kinds = sorted({case.kind for case in cases})
        for kind in ("", *kinds):
            found = measure(case for case in cases if not kind or case.kind == kind)
            failed = found.hits + found.missed
            low, high = wilson(found.hits, failed)
            recall = f"{found.recall:.3f} [{low:.3f}, {high:.3f}]"
            rows.append((f"{part} {kind}".strip(), found.cases, failed, f"{found.precision:.3f}", recall))
            if part == _FROZEN:
                end = f"_{kind}" if kind else ""
                figures |= {f"cases{end}": found.cases}
                if failed:
                    figures |= {f"precision_failed{end}": found.precision, f"recall_failed{end}": found.recall}
    report.table("Tool answers", ("part", "cases", "failed", "precision", "recall"), rows)
    report.write(args.json, "tool_results", figures)


if __name__ == "__main__":
    main()

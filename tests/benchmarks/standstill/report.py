"""What is shown of the cells, and written."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from tests.benchmarks import report
from tests.benchmarks.standstill.cell import silence
from tests.benchmarks.standstill.falls import falls as planted_falls
from tests.benchmarks.standstill.meter import First, Ran

FALLS = (0.1, 0.05, 0.02)
"""Shares of runs with an outcome at which the sentinel has to find a fall."""
_COLUMNS = (
    "cell", "bound", "runs", "hours", "order", "update", "swap", "stays", "ratio", "orders", "swaps", "back",
    "reject", "hold", "rebase", "freeze", "trained", "quiet", "success", "stuck",
)  # fmt: skip
_WIDE = 200
"""Columns of a terminal that the table needs."""


def row(ran: Ran) -> tuple[object, ...]:
    """One line of the table: runs until something happened first, then how often, then what came of it."""
    counts = ran.counts
    return (
        ran.name, round(ran.bound), ran.runs, round(ran.hours), _runs(ran.first_order), _runs(ran.first_update),
        _runs(ran.first_promotion), _runs(ran.first_settled), "-" if ran.ratio is None else f"{ran.ratio:.2f}",
        *(counts.get(name, 0) for name in ("order", "promotion", "rollback", "reject", "hold", "rebase", "freeze")),
        f"{ran.trained_share:.1%}", f"{ran.quiet:.1f}", f"{ran.skill:.0%}", "yes" if ran.stuck else "-",
    )  # fmt: skip


def line(ran: Ran) -> str:
    """For whoever waits."""
    promoted = "never promoted" if ran.first_promotion is None else f"promoted at run {ran.first_promotion.runs}"
    return f"{ran.name:22} {ran.runs:6} runs in {ran.wall:5.1f} s, {promoted}" + (
        f", STUCK: {ran.stuck}" if ran.stuck else ""
    )


def show(cells: Sequence[Ran]) -> None:
    """The table."""
    report.table(
        "Learning from production alone", _COLUMNS, [row(ran) for ran in cells], Console(width=_WIDE)
    )  # fmt: skip


def figures(cells: Sequence[Ran]) -> dict[str, float]:
    """The figures that claims rest on. Ratios are over the cells where something is to be promoted; a cell without a
    promotion counts with the runs that it had."""
    wanted = [ran for ran in cells if not ran.name.startswith("worse")]
    return {
        "cells": len(cells),
        "stuck": sum(bool(ran.stuck) for ran in cells),
        "never_promoted": sum(ran.first_promotion is None for ran in wanted),
        "worst_ratio": max((_ratio(ran, ran.ratio) for ran in wanted), default=0.0),
        "worst_settled_ratio": max((_ratio(ran, ran.settled_ratio) for ran in wanted), default=0.0),
        "worst_quiet": max((ran.quiet for ran in cells), default=0.0),
        # Learning that goes on may still go the wrong way: version 0 succeeds in 0.4 of its runs.
        "lowest_success": min((ran.skill for ran in cells), default=0.0),
    }


def falls(seed: int) -> dict[str, float]:
    """In how many of eight trials the sentinel found a planted fall, by the share of runs that are reported."""
    with silence():
        return {f"fall_found_{share * 100:g}pct": planted_falls(share, seed=seed).found for share in FALLS}


def write(path: Path | None, cells: Sequence[Ran], figures: dict[str, float], seed: int) -> None:
    """As every benchmark does, with the cells."""
    report.write(path, "standstill", figures, [seed])
    if path is not None:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["cells"] = msgspec.to_builtins(cells)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _ratio(ran: Ran, ratio: float | None) -> float:
    return ran.runs / ran.bound if ratio is None else ratio


def _runs(first: First | None) -> str:
    return "-" if first is None else str(first.runs)

"""What `evolved why VERSION` prints for people."""

from typing import Any

from rich.console import Console

from daemon.api.why import how_long, when
from daemon.cli.output import OutputTable, screen

_LINE = 100
"""Versions of the line that are shown, the nearest."""


def show(told: dict[str, Any]) -> None:
    """Print what `daemon.api.why.explain` made, for people."""
    console = screen()
    facts = OutputTable.grid(padding=(0, 2))
    facts.add_row("version", f"v{told['version']}, trained {when(told['trained']) or 'before the store was there'}")
    line = [told["version"], *told["line"]]
    more = f" <- {len(line) - _LINE} more" if len(line) > _LINE else ""
    facts.add_row("line", " <- ".join(f"v{one}" for one in line[:_LINE]) + more)
    manifest = told["manifest"]
    state = "no longer on this disk" if not manifest["on_disk"] else manifest["problem"] or "signature good"
    facts.add_row("manifest", f"{manifest['sha256'] or 'unknown'} ({state})")
    for span in told["served"]:
        facts.add_row(
            "served", f"{span['engine']} from {when(span['since'])}, {how_long(span['since'], span['until'])}"
        )
    for back in told["setbacks"]:
        facts.add_row(back["kind"], f"{when(back['at'])} {back['who']}: {back['reason']}")
    console.print(facts)
    batches = OutputTable("batch", "tenant", "source", "trajectories", title="trained on", title_justify="left")
    for batch in told["batches"]:
        for source in batch["sources"] or [{"tenant": "?", "source": "?", "trajectories": batch["trajectories"]}]:
            batches.add_row(batch["batch_id"], source["tenant"], source["source"], str(source["trajectories"]))
    console.print(batches)
    _figures(console, "learner", told["metrics"])
    for verdict in told["verdicts"]:
        good = verdict["signature_problem"] or "signature good"
        title = f"{when(verdict['created'])} {verdict['decision']} against v{verdict['incumbent']} ({good})"
        console.print(f"{title}: {verdict['reason']}")
        _figures(console, "measurement", verdict["measurements"])


def _figures(console: Console, title: str, figures: dict[str, float]) -> None:
    table = OutputTable(title, "value")
    for name, value in sorted(figures.items()):
        table.add_row(name, f"{value:.6g}")
    if figures:
        console.print(table)

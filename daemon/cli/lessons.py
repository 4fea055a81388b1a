"""What `evolved experience` and `evolved forget` print for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from daemon.cli.output import OutputTable, screen


def show(action: str, answer: Any, console: Console | None = None) -> None:
    """Print the control API's answer to `action`."""
    console = console or screen()
    match action:
        case "list" | "search":
            _lessons(answer, console)
        case "show":
            _lesson(answer, console)
        case "add":
            said = "added, on trial" if answer["added"] else f"was there already, {answer['lesson']['state']}"
            console.print(f"{answer['lesson']['id']}: {said}")
        case "import":
            _imported(answer, console)
        case _:
            console.print(f"{answer['id']}: {answer['state']} (revision {answer['revision']})")


def _lessons(found: Sequence[dict[str, Any]], console: Console) -> None:
    if not found:
        console.print("no lessons")
        return
    for item in found:
        lesson = item["lesson"]
        facts = [lesson["id"], *([f"score {item['score']:.3f}"] if item["score"] is not None else [])]
        facts += [lesson["state"], lesson["kind"], lesson["origin"], f"tenant {lesson['tenant']}"]
        facts += [f"guided {_of(lesson['guided'])}, unguided {_of(lesson['unguided'])}"]
        console.print("  ".join(filter(None, facts)), style="bold")
        words = OutputTable.grid(padding=(0, 2))
        for name, text in (("when", lesson["when_to_use"]), ("do", lesson["content"]), ("why", lesson["reason"])):
            if text:
                words.add_row("", name, text)
        console.print(words)


def _lesson(told: dict[str, Any], console: Console) -> None:
    lesson = told["lesson"]
    facts = OutputTable.grid(padding=(0, 2))
    for name in ("id", "tenant", "kind", "state", "reason", "origin", "when_to_use", "content"):
        facts.add_row(name.replace("_", " "), str(lesson[name]))
    facts.add_row("guided", f"{_of(lesson['guided'])}; unguided {_of(lesson['unguided'])}")
    if lesson["detail"]:
        facts.add_row("detail", str(lesson["detail"]))
    console.print(facts)
    revisions = OutputTable("revision", "changed", "state", "reason", title="revisions", title_justify="left")
    for item in told["revisions"]:
        revisions.add_row(str(item["revision"]), _when(item["updated"]), item["state"], item["reason"])
    console.print(revisions)
    if told["sources"]:
        sources = OutputTable("trajectory", "ended", "outcome", "goal", title="drawn from", title_justify="left")
        for item in told["sources"]:
            goal = item["goal"] if item["known"] else Text("no longer in the store", style="dim")
            outcome = "" if item["outcome"] is None else f"{item['outcome']:g}"
            sources.add_row(item["id"], _when(item["ended"]), outcome, goal)
        console.print(sources)


def _imported(told: dict[str, Any], console: Console) -> None:
    would = "would be " if told["dry_run"] else ""
    parts = [f"{told['added']:,} {would}added ({told['quarantined']:,} in quarantine)", f"{told['known']:,} known"]
    if told["forgotten"]:
        parts.append(f"{told['forgotten']:,} left out: drawn from what was forgotten here")
    console.print(f"{told['lessons']:,} lessons: {', '.join(parts)}")


def show_forgotten(told: dict[str, Any], console: Console | None = None) -> None:
    """Print what went, or would go, and which versions saw it."""
    console = console or screen()
    console.print("would go:" if told["dry_run"] else "gone:")
    facts = OutputTable.grid(padding=(0, 2))
    for name in ("trajectories", "exchanges", "feedback"):
        facts.add_row("", name, f"{told[name]:,}")
    facts.add_row("", "lessons drawn from it", f"{len(told['lessons']):,}")
    facts.add_row("", "batches that held some", f"{told['batches']:,}")
    console.print(facts)
    if told["versions"]:
        versions = OutputTable("version", "trained on", "serves at", title="weights that saw it", title_justify="left")
        for item in told["versions"]:
            number = item["trajectories"]
            trained = f"{number:,} trajectories" if number else "what a version before it was trained on"
            versions.add_row(f"v{item['version']}", trained, ", ".join(item["engines"]))
        console.print(versions)
        console.print("Weights are not unlearned; `evolved rollback --to VERSION` goes back behind them.")
    else:
        console.print("no weights saw it")
    if told["unanswered"]:
        orders = len(told["unanswered"])
        console.print(f"{orders} of the batches had no version yet: if the learner was at it, one may still come of it")
    if not told["folded"]:
        console.print("the database's files still hold some of it, until they are overwritten by themselves")


def _of(tried: Sequence[int]) -> str:
    return f"{tried[1]} of {tried[0]}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""

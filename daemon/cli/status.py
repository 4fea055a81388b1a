"""`evolved status`: asks the running daemon and prints what a person wants to know first."""

from datetime import UTC, datetime
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from actors.curation.remedies import counted
from daemon.cli.control_client import control_client, refusal, unreachable
from daemon.cli.output import OutputTable, coloured, screen
from daemon.errors import ControlUnreachable
from daemon.settings.control import ControlSettings

_AGENTS = 8
"""Agents that are shown, the busiest."""
_COLOURS = {"moving": "green", "waiting": "yellow", "frozen": "red"}
_TOLD = 3
"""Findings of the sentinel that are shown, the newest."""


def fetch(settings: ControlSettings, path: str = "/api/status", seconds: float = 5.0) -> dict[str, Any]:
    """What the daemon answers at `path`.

    Args:
        seconds: that it has.

    Raises:
        ControlUnreachable: nobody answers there, or not without an admin key.
    """
    with control_client(settings, seconds) as http:
        try:
            answer = http.get(path)
            answer.raise_for_status()
            return dict(answer.json())
        except httpx.HTTPStatusError as error:
            raise ControlUnreachable(refusal(error)) from error
        except (httpx.HTTPError, ValueError) as error:
            raise unreachable(settings, error) from error


def show(status: dict[str, Any], console: Console | None = None) -> None:
    """Print `status` as tables: the figures, the engines, and the actors."""
    console = console or screen()
    success, serving = status["success"], status["serving"]
    rate = "–" if success["rate"] is None else f"{100 * success['rate']:.0f} %"
    figures = OutputTable.grid(padding=(0, 2))
    _learning(figures, status)
    if status.get("kill_switch"):
        figures.add_row("kill switch", coloured(status["kill_switch"], "red"))
    figures.add_row("serving", f"v{serving['version']}" if serving else "as the engine started")
    figures.add_row("trained", f"v{status['trained']}")
    figures.add_row(
        "success", f"{rate} of the last {success['n']} [{100 * success['low']:.0f}, {100 * success['high']:.0f}]"
    )
    if status.get("parties"):
        figures.add_row("parties", status["parties"]["sentence"])
    shares = status["shares"]
    figures.add_row(
        "training from", f"{100 * shares['production']:.0f} % production, {100 * shares['sandbox']:.0f} % sandbox"
    )
    missed = status.get("learning", {}).get("effect", {}).get("no_gradient", {})
    if missed:
        figures.add_row("no gradient", f"{sum(missed.values())} runs ordered: {counted(missed)}")
    for told in status.get("sentinel", {}).get("told", [])[-_TOLD:]:
        figures.add_row("sentinel", f"{told['action']}: {told['reason']}")
    for name, value in sorted(status["counts"].items()):
        figures.add_row(name.replace("_", " "), str(value))
    console.print(figures)
    agents = status.get("learning", {}).get("agents", [])
    if agents:
        console.print(_agents(agents, status["learning"]["agents_known"]))
    fleet = status.get("fleet", {})
    if fleet.get("engines"):
        console.print(_engines(fleet))
    actors = OutputTable("actor", "status", "restarts", "last error")
    for actor in status["actors"]:
        actors.add_row(actor["name"], actor["status"], str(actor["restarts"]), actor["note"] or actor["last_error"])
    console.print(actors)


def _learning(figures: Table, status: dict[str, Any]) -> None:
    """Its state, what it waits for, what to change, and what share of the runs had an effect."""
    learning = status.get("learning", {})
    if not learning:
        # The books are still being read: it is not known, and not green.
        figures.add_row(
            "learning", coloured("frozen", "red") if status["frozen"] else coloured("not known yet", "yellow")
        )
        return
    state = coloured(learning["state"], _COLOURS[learning["state"]])
    figures.add_row("learning", state.append(f": {learning['sentence']}"))
    if learning["remedy"]:
        figures.add_row("", f"what to change: {learning['remedy']}")
    if learning["effect"]["sentence"]:
        figures.add_row("effect", learning["effect"]["sentence"])
    if "provisional" in learning:
        figures.add_row("outcomes", outcome_shares(learning["effect"]))
        figures.add_row("outcome model", outcome_model(learning["provisional"]))


def outcome_shares(effect: dict[str, Any]) -> str:
    """Of production's runs: how many were reported, were trained on with a provisional outcome, or have none."""
    runs, told, guessed = effect["runs"], effect["reported"], effect["provisional"]
    if not runs:
        return "no run yet"
    shares = (100 * part / runs for part in (told, guessed, max(0, runs - told - guessed)))
    return "{:.0f} % of the runs reported, {:.0f} % provisional alone, {:.0f} % none".format(*shares)


def outcome_model(told: dict[str, Any]) -> str:
    """What it knows, and whether it is listened to."""
    skill = told["skill"]
    if skill is None:
        return f"none: it takes 30 reported outcomes, there are {told['outcomes']}"
    use = "trained on" if told["on"] else "only shown (train.provisional = false)"
    kept = [f"{one['signal']} of {one['agent']}" for one in told["signals"] if one["quarantined"]]
    looks = [one["agent"] for one in told["gaps"] if one["overrated"]]
    return (
        f"version {told['model']}, skill {skill['skill']:.2f} [{skill['low']:.2f}, {skill['high']:.2f}] over "
        f"{skill['outcomes']} outcomes, calibration error {skill['calibration']:.3f}, weight {told['weight']:.2f}; "
        + use
        + (f"; not listened to: {', '.join(kept)}" if kept else "")
        + (f"; looks better than it is: {', '.join(looks)}" if looks else "")
    )


def _agents(agents: list[dict[str, Any]], known: int) -> OutputTable:
    table = OutputTable(
        "agent", "runs", "reported", "learned from", "calls that train", "is there learning from it, and what to change"
    )
    for agent in agents[:_AGENTS]:
        told = agent["sentence"] + (f"\n→ {agent['remedy']}" if agent["remedy"] else "")
        colour = "green" if agent["learning"] else "yellow"
        numbers = (str(agent["runs"]), str(agent["reported"]), str(agent["learned"]))
        table.add_row(agent["label"], *numbers, agent["calls_sentence"], coloured(told, colour))
    rest = agents[_AGENTS:]
    if known > _AGENTS:
        learning = sum(agent["learning"] for agent in rest)
        table.caption = f"{known - _AGENTS} more agents, less busy; there is learning from {learning} of them (--json)"
    return table


def _version(number: int | None) -> str | Text:
    if number is None:
        return coloured("away", "red")
    return f"v{number}" if number >= 0 else "as it started"


def _trial(fleet: dict[str, Any]) -> str:
    told = f"on trial: {fleet['canary_runs']} runs, {fleet['canary_judged']} with an outcome"
    return f"{told}; compared with {fleet['canary_against']}, next at {fleet['canary_due']}"


def _engines(fleet: dict[str, Any]) -> OutputTable:
    engines = OutputTable("engine", "version", "since", "new trajectories", "note")
    for name, view in fleet["engines"].items():
        version = _version(view["version"])
        since = datetime.fromtimestamp(view["since"], UTC).strftime("%Y-%m-%d %H:%M:%SZ") if view["since"] else "–"
        share = f"{100 * view['canary_share']:.3g} % (canary)" if view["canary_share"] else "by weight"
        share = "all" if len(fleet["engines"]) == 1 else share
        notes = [coloured("paused", "red")] if view["paused"] else []
        if name == fleet["canary_engine"]:
            notes.append(Text(_trial(fleet)))
        if view["note"]:
            notes.append(Text(view["note"]))
        engines.add_row(name, version, since, share, Text("; ").join(notes))
    stable = "nothing yet" if fleet["stable"] is None else f"v{fleet['stable']}"
    trial = f"; v{fleet['canary']} is on trial" if fleet["canary"] is not None else ""
    waiting = f"; v{fleet['waiting']} waits for its trial" if fleet["waiting"] is not None else ""
    back = ", ".join(f"v{version}" for version in reversed(fleet["good"])) or "nothing"
    engines.caption = f"should serve: {stable}{trial}{waiting}; one can go back to: {back}"
    return engines

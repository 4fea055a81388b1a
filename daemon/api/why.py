"""`evolved why`: what the store tells of a version, with the signatures looked at."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from actors.messages import MANIFEST, Verdict
from actors.messages.signing import record_problem
from actors.ports.errors import AdapterError
from actors.store.stories import Why
from adapters.weights import check_directory
from daemon.settings.tables import Config
from daemon.upkeep.provenance import Provenance


def explain(found: Why, config: Config) -> dict[str, Any]:
    """`found` as JSON knows it; `problems` lists signatures and digests that are not good."""
    provenance = Provenance(config.state)
    gate, candidate = provenance.trusted("gate"), found.candidate
    problems: list[str] = []

    def told(verdict: Verdict) -> dict[str, Any]:
        problem = record_problem(verdict, gate)
        if problem:
            problems.append(f"verdict {verdict.id}: {problem}")
        return {**msgspec.to_builtins(verdict), "signature_problem": problem}

    verdicts = [told(verdict) for verdict in found.history.verdicts]
    directory = config.state / "versions" / f"v{found.history.version:06d}"
    manifest: dict[str, Any] = {"sha256": found.history.manifest, "directory": str(directory), "on_disk": False}
    if (directory / MANIFEST).is_file():
        manifest["on_disk"], manifest["problem"] = True, _manifest_problem(directory, found, provenance)
        if manifest["problem"]:
            problems.append(manifest["problem"])
    history = msgspec.to_builtins(found.history)
    return {
        **history,
        "line": found.line,
        "batches": msgspec.to_builtins(found.batches),
        "metrics": {} if candidate is None else candidate.metrics,
        "files": [] if candidate is None else msgspec.to_builtins(candidate.files),
        "manifest": manifest,
        "verdicts": verdicts,
        "problems": problems,
    }


def _manifest_problem(directory: Path, found: Why, provenance: Provenance) -> str:
    try:
        check_directory(
            directory, version=found.history.version, wanted=found.history.manifest, check=provenance.manifest_check()
        )
    except AdapterError as error:
        return str(error)
    return ""


def when(at: float | None) -> str:
    """`at` (unix seconds) in UTC; empty for None."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def how_long(since: float, until: float | None) -> str:
    """How long a span is, for people."""
    return "until now" if until is None else f"for {until - since:,.0f} s"

"""Real, unmodified clients through the tap, and whether each of their runs became one trajectory.

python -m tests.clients                     the table
python -m tests.clients --json build/clients.json
python -m tests.clients --record            write what the clients send to tests/clients/recorded
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from actors.messages.spool import RawExchange
from tests.benchmarks import report
from tests.clients import rig
from tests.clients.catalogue import CLIENTS, HERE, Run, runs
from tests.clients.engine.script import TOOLS, VARIED
from tests.clients.trial import trial
from tests.clients.verdict import Verdict, exchanges

RECORDED = HERE / "recorded"
STREAMS = (("openai chat", TOOLS), ("openai responses", VARIED))
"""What is recorded as a stream too: the merging of streams depends on the server, not on the client."""
COLUMNS = (
    "client", "mode", "script", "runs", "calls", "trajectories", "split", "mixed", "min confidence", "trainable",
    "signals",
)  # fmt: skip


def measure(count: int, only: str, directory: Path) -> list[Verdict]:
    """All clients through one tap."""
    clients = [client for client in CLIENTS if only in client.name]
    with rig.scripted_engine(directory / "engine.log") as engine:
        return trial(clients, count, engine, directory / "plain").verdicts


def show(verdicts: list[Verdict]) -> None:
    """The table on screen."""
    rows = [
        (
            v.client, v.mode, v.script, v.runs, v.calls, v.trajectories, v.split, v.mixed, v.min_confidence,
            f"{v.trainable}" + (f" ({', '.join(v.why_not)})" if v.why_not else ""),
            ", ".join(f"{name} {number}" for name, number in sorted(v.signals.items())),
        )
        for v in verdicts
    ]  # fmt: skip
    report.table("Runs of real clients, stitched", COLUMNS, rows, Console(width=200))


def record(directory: Path) -> None:
    """Write the calls of one run of each client and script to `RECORDED`, one file a client; two streams as well."""
    planned = [
        run
        for client in CLIENTS
        for run in runs(client, 1, (TOOLS,) if "js" in client.name else (TOOLS, VARIED))
        if not run.streamed or (run.client, run.script) in STREAMS
    ]
    with (
        rig.scripted_engine(directory / "engine.log") as engine,
        rig.tap(engine, directory / "tap", capture_tokens=False) as url,
    ):
        rig.work(CLIENTS, planned, url, directory / "clients")
        truth = rig.given(engine)
        records = rig.spooled(directory / "tap", len(truth))
    names = {run.key: run for run in planned}
    lines: dict[str, list[dict[str, Any]]] = {}
    for raw in sorted(records, key=lambda raw: raw.received):
        run = names[truth[exchanges([raw])[0].response_id]["key"]]
        lines.setdefault(run.client, []).append(_line(run, raw))
    RECORDED.mkdir(exist_ok=True)
    for client, own in lines.items():
        own.sort(key=lambda line: (line["script"], line["streamed"]))
        path = RECORDED / f"{client.replace(',', '').replace(' ', '_')}.jsonl"
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in own))
    print(f"{sum(map(len, lines.values()))} calls in {len(lines)} files under {RECORDED}")


def _line(run: Run, raw: RawExchange) -> dict[str, Any]:
    return {
        "client": run.client,
        "script": run.script,
        "streamed": run.streamed,
        "path": raw.path,
        "status": raw.status,
        "content_type": raw.content_type,
        "request": json.loads(raw.request),
        "response": raw.response.decode() if run.streamed else json.loads(raw.response),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each client, mode and script (3)")
    parser.add_argument("--only", default="", help="clients whose name contains this")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--record", action="store_true", help="write what the clients send to tests/clients/recorded")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evolved-clients-") as name:
        if told.record:
            record(Path(name))
            return
        verdicts = measure(told.runs, told.only, Path(name))
    show(verdicts)
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        told.json.write_bytes(msgspec.json.format(msgspec.json.encode(verdicts), indent=1))


if __name__ == "__main__":
    main()

"""Writes what real, unmodified clients send, and get, to tests/clients/recorded: `python -m tests.clients`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.clients import rig
from tests.clients.catalogue import CLIENTS, HERE, runs
from tests.clients.engine.script import TOOLS, VARIED

RECORDED = HERE / "recorded"


def record(directory: Path) -> None:
    """Write the calls of one run of each client and script to `RECORDED`, one file a client."""
    planned = [
        run
        for client in CLIENTS
        for run in runs(client, 1, (TOOLS,) if "js" in client.name else (TOOLS, VARIED))
        if not run.streamed
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
    for call in sorted(records, key=lambda call: call.started):
        run = names[truth[call.response_id]["key"]]
        line = {
            "client": run.client, "script": run.script, "path": call.endpoint, "status": call.status,
            "request": json.loads(call.request), "response": json.loads(call.response),
        }  # fmt: skip
        lines.setdefault(run.client, []).append(line)
    RECORDED.mkdir(exist_ok=True)
    for client, own in lines.items():
        own.sort(key=lambda line: line["script"])
        path = RECORDED / f"{client.replace(',', '').replace(' ', '_')}.jsonl"
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in own))
    print(f"{sum(map(len, lines.values()))} calls in {len(lines)} files under {RECORDED}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evolved-clients-") as place:
        record(Path(place))

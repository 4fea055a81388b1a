"""Writes what real, unmodified clients send, and get, to tests/clients/recorded: `python -m tests.clients`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from adapters.intake.tap import exchange_from_raw
from tests.clients import rig
from tests.clients.catalogue import CLIENTS, HERE, runs
from tests.clients.engine.script import TOOLS, VARIED

RECORDED = HERE / "recorded"
STREAMS = (("openai chat", TOOLS), ("openai responses", VARIED))
"""What is recorded as a stream too: the merging of streams depends on the server, not on the client."""


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
        run = names[truth[exchange_from_raw(raw).response_id]["key"]]
        line = {
            "client": run.client, "script": run.script, "streamed": run.streamed, "path": raw.path,
            "status": raw.status, "content_type": raw.content_type, "request": json.loads(raw.request),
            "response": raw.response.decode() if run.streamed else json.loads(raw.response),
        }  # fmt: skip
        lines.setdefault(run.client, []).append(line)
    RECORDED.mkdir(exist_ok=True)
    for client, own in lines.items():
        own.sort(key=lambda line: (line["script"], line["streamed"]))
        path = RECORDED / f"{client.replace(',', '').replace(' ', '_')}.jsonl"
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in own))
    print(f"{sum(map(len, lines.values()))} calls in {len(lines)} files under {RECORDED}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evolved-clients-") as place:
        record(Path(place))

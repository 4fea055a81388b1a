"""What a person asks after an incident, answered from the store alone."""

import json
import shutil
import sqlite3
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.messages import BatchOrder, Directive, Serving, Verdict
from actors.messages.signing import sign
from actors.store import Store
from daemon.cli.main import main
from daemon.settings.config import Config
from daemon.upkeep.provenance import Provenance
from learner.versions import Versions
from tests.support import checkpoints
from tests.support.credited import attributed

REASON = "success fell [/x] [bold fell [red]:warning:\\"
"""As it was written, whatever it looks like."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Version 1 trained on two trajectories, judged, served, taken back; version 0 serves again."""
    config = Config(state_dir=str(tmp_path))
    provenance = Provenance(config.provenance, tmp_path)
    base = checkpoints.write(tmp_path / "base", 1)
    versions = Versions(tmp_path / "versions", key=provenance.key("learner"))
    for version in (0, 1):
        versions.write(
            version, version - 1,
            lambda aside: shutil.copy(base / "model.safetensors", aside) and (),
            rest=base, batch_ids=("b",) if version else (), metrics={"kl_old": 0.01}, created=10.0 + version,
        )  # fmt: skip
    first, second = versions.candidate(0), versions.candidate(1)
    verdict = Verdict(
        id="j", version=1, path=second.path, manifest=second.manifest, incumbent=0, decision="promote", reason="better",
        measurements={"success": 0.75, "tasks": 96.0}, created=12.0,
    )  # fmt: skip

    def serving(version: int, since: float, result: str = "swapped") -> Serving:
        return Serving(
            id=f"s{since}", engine="serving", version=version, previous=0, path="", result=result, since=since,
            reason="canary" if result == "rolled_back" else "",
        )  # fmt: skip

    records = [
        attributed("t1"), attributed("t2"),
        BatchOrder(id="b", path="", sha256="", size=0, trajectories=("t1", "t2"), created=9.0),
        first, second, sign(verdict, provenance.key("gate")), serving(0, 5.0, "started"), serving(1, 20.0),
        Directive(id="d", kind="rollback", reason=REASON, origin="sentinel", created=29.0,
                  details={"version": "1", "to": "0"}),
        serving(0, 30.0), serving(1, 40.0, "rolled_back"),
    ]  # fmt: skip

    async def fill() -> None:
        store = Store(config.store_url, clock=lambda: 50.0)
        await store.open()
        await store.save(records)
        await store.aclose()

    anyio.run(fill)
    return tmp_path


def run(state: Path, *words: str) -> int:
    return main([*words, "--set", f"state_dir={json.dumps(str(state))}"])


def test_history_tells_who_served_how_long_and_what_was_taken_back_why(state, capsys):
    assert run(state, "history", "--json") == 0
    zero, one = json.loads(capsys.readouterr().out)
    assert [(span["since"], span["until"]) for span in zero["served"]] == [(5.0, 20.0), (30.0, None)]
    assert one["served"] == [{"engine": "serving", "since": 20.0, "until": 30.0}]
    assert (one["parent"], one["trained"], one["verdicts"][0]["decision"]) == (0, 11.0, "promote")
    assert [(back["kind"], back["who"], back["reason"]) for back in one["setbacks"]] == [
        ("rollback", "sentinel", REASON), ("rolled_back", "serving", "canary"),
    ]  # fmt: skip
    assert run(state, "history") == 0
    assert REASON in capsys.readouterr().out


def test_why_tells_sources_measurements_and_that_the_signatures_are_good(state, capsys):
    assert run(state, "why", "v1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    assert [item["version"] for item in told["ancestry"]] == [0]
    (batch,) = told["batches"]
    assert (batch["trajectories"], sum(source["trajectories"] for source in batch["sources"])) == (2, 2)
    assert told["verdicts"][0]["measurements"] == {"success": 0.75, "tasks": 96.0}
    assert told["metrics"] == {"kl_old": 0.01}
    assert told["manifest"]["on_disk"]
    assert run(state, "why", "1") == 0
    shown = capsys.readouterr().out
    assert "signature good" in shown
    assert "v1 <- v0" in shown
    assert REASON in shown


def test_why_says_which_signature_is_not_good(state, capsys):
    manifest = state / "versions" / "v000001" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with sqlite3.connect(state / "evolved.db") as store:
        (body,) = store.execute("SELECT body FROM verdicts").fetchone()
        message = msgspec.msgpack.decode(body, type=Verdict)
        forged = msgspec.structs.replace(message, measurements={"success": 0.99, "tasks": 96.0})
        store.execute("UPDATE verdicts SET body = ?", (msgspec.msgpack.encode(forged),))
    store.close()
    assert run(state, "why", "1", "--json") == 1
    first, second = json.loads(capsys.readouterr().out)["problems"]
    assert "verdict j" in first
    assert "not the one that was judged" in second
    assert run(state, "audit", "verify") == 1
    assert "its record was changed: verdict j" in capsys.readouterr().err


def test_the_trail_verifies_and_its_head_is_an_anchor(state, capsys):
    assert run(state, "audit", "head") == 0
    head = capsys.readouterr().out.strip()
    assert run(state, "audit", "verify", "--anchor", head) == 0
    assert "sound: 8 entries" in capsys.readouterr().out
    assert run(state, "audit", "verify", "--anchor", f"8:{'0' * 64}", "--json") == 1
    assert json.loads(capsys.readouterr().out)["broken"] == 8
    assert run(state, "audit", "verify", "--anchor", "nonsense") == 2
    capsys.readouterr()
    assert run(state, "audit", "show", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 9))


def test_a_rotated_key_signs_on_and_old_versions_count_until_its_public_half_is_taken_out(state, capsys):
    assert run(state, "provenance", "rotate", "learner") == 0
    assert run(state, "why", "1") == 0
    capsys.readouterr()
    assert run(state, "provenance", "show", "learner") == 0
    new = capsys.readouterr().out
    (state / "keys" / "learner-public.pem").write_text(new)
    assert run(state, "why", "1") == 1
    assert run(state, "provenance", "sign") == 0
    assert run(state, "why", "1") == 0


def test_a_public_key_is_carried_to_another_node(state, tmp_path, capsys):
    assert run(state, "provenance", "show", "learner") == 0
    key = tmp_path / "learner.pem"
    key.write_text(capsys.readouterr().out)
    other = tmp_path / "engines"
    assert run(other, "provenance", "trust", "learner", str(key)) == 0
    assert "added" in capsys.readouterr().out
    assert run(state, "provenance", "show", "--json") == 0
    signs = json.loads(capsys.readouterr().out)[0]["signs_with"]
    assert run(other, "provenance", "show", "--json") == 0
    there = json.loads(capsys.readouterr().out)[0]
    assert (there["signs_with"], there["trusted"]) == (None, [signs])
    assert run(other, "provenance", "trust", "learner") == 2

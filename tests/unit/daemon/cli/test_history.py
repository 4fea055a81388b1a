"""What a person asks after an incident, answered from the store alone. What the control API tells: `tests/browser`."""

import json
import sqlite3

import msgspec

from actors.messages import Verdict
from tests.unit.daemon.cli.conftest import MEASURED, REASON, Evolved


def test_history_tells_who_served_how_long_and_what_was_taken_back_why(versions: Evolved) -> None:
    zero, one = versions.json("history")
    assert [(span["since"], span["until"]) for span in zero["served"]] == [(5.0, 20.0), (30.0, None)]
    assert one["served"] == [{"engine": "serving", "version": 1, "since": 20.0, "until": 30.0}]
    assert (one["parent"], one["trained"], one["verdicts"][0]["decision"]) == (0, 11.0, "promote")
    assert [(back["kind"], back["who"], back["reason"]) for back in one["setbacks"]] == [
        ("rollback", "sentinel", REASON), ("rolled_back", "serving", "canary"),
    ]  # fmt: skip
    assert REASON in versions("history").out


def test_why_tells_sources_measurements_and_that_the_signatures_are_good(versions: Evolved) -> None:
    told = versions.json("why v1")
    assert told["problems"] == []
    assert told["line"] == [0]
    (batch,) = told["batches"]
    assert (batch["trajectories"], sum(source["trajectories"] for source in batch["sources"])) == (2, 2)
    assert told["verdicts"][0]["measurements"] == MEASURED
    assert told["metrics"] == {"kl_old": 0.01}
    assert told["manifest"]["on_disk"]
    shown = versions("why 1").out
    assert "signature good" in shown
    assert "v1 <- v0" in shown
    assert REASON in shown


def test_why_says_which_signature_is_not_good(versions: Evolved) -> None:
    manifest = versions.directory / "versions" / "v000001" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with sqlite3.connect(versions.directory / "evolved.db") as store:
        (body,) = store.execute("SELECT body FROM verdicts").fetchone()
        message = msgspec.msgpack.decode(body, type=Verdict)
        forged = msgspec.structs.replace(message, measurements={**MEASURED, "success": 0.99})
        store.execute("UPDATE verdicts SET body = ?", (msgspec.msgpack.encode(forged),))
    store.close()
    first, second = versions.json("why 1", 1)["problems"]
    assert "verdict j" in first
    assert "not the one that was judged" in second
    assert "its record was changed: verdict j" in versions("audit verify", 1).err


def test_the_trail_verifies_and_its_head_is_an_anchor(versions: Evolved) -> None:
    head = versions("audit head").out.strip()
    assert "sound: 8 entries" in versions(f"audit verify --anchor {head}").out
    assert versions.json(f"audit verify --anchor 8:{'0' * 64}", 1)["broken"] == 8
    versions("audit verify --anchor nonsense", 2)
    lines = [json.loads(line) for line in versions("audit show --json").out.splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 9))


def test_a_rotated_key_signs_on_and_old_versions_count_until_its_public_half_is_gone(versions: Evolved) -> None:
    versions("provenance rotate learner")
    versions("why 1")
    (versions.directory / "keys" / "learner-public.pem").write_text(versions("provenance show learner").out)
    versions("why 1", 1)
    versions("provenance sign")
    versions("why 1")


def test_a_public_key_is_carried_to_another_node(versions: Evolved) -> None:
    key, there = versions.directory / "learner.pem", f"--set state_dir={versions.directory}/engines"
    key.write_text(versions("provenance show learner").out)
    assert "added" in versions(f"provenance trust learner {key} {there}").out
    ours, theirs = versions.json("provenance show")[0], versions.json(f"provenance show {there}")[0]
    assert (theirs["signs_with"], theirs["trusted"]) == (None, [ours["signs_with"]])

"""What is kept on disk of live calls, and how much."""

import json
import os
from pathlib import Path

import pytest

from actors.ports.errors import AdapterNotSetUp
from adapters.live import audit, recording
from adapters.live.audit import AuditLine, AuditLog
from adapters.live.recording import Recorded, Recordings

pytestmark = pytest.mark.anyio


def answer(text: str) -> Recorded:
    return Recorded(api="a", tool="t", time=1.0, text=text)


def line(tool: str) -> AuditLine:
    return AuditLine(time=1.0, api="a", tool=tool, call="c", mode="live", source="live", outcome="ok")


async def test_a_call_is_the_same_whatever_the_order_of_its_arguments(tmp_path: Path) -> None:
    kept = Recordings(tmp_path)
    digests = {
        kept.digest("a", "t", {"x": 1, "y": {"b": 1, "c": 2}}),
        kept.digest("a", "t", {"y": {"c": 2, "b": 1}, "x": 1}),
    }
    others = {kept.digest("b", "t", {"x": 1}), kept.digest("a", "u", {"x": 1}), kept.digest("a", "t", {"x": "1"})}
    assert len(digests) == 1
    assert len(digests | others) == 4


async def test_answers_outlive_the_process_and_are_for_this_user_alone(tmp_path: Path) -> None:
    first = Recordings(tmp_path / "answers")
    await first.put(first.digest("a", "t", {}), answer("hello"))
    second = Recordings(tmp_path / "answers")
    found = await second.get(second.digest("a", "t", {}))
    assert found is not None
    assert found.text == "hello"
    assert (tmp_path / "answers" / "digest.key").stat().st_mode & 0o077 == 0


async def test_the_oldest_answers_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_ENTRIES", 3)
    kept = Recordings(tmp_path)
    for name in "abcd":
        await kept.put(name, answer(name))
    assert [await kept.get(name) is not None for name in "abcd"] == [False, True, True, True]
    assert kept.counts["evicted"] == 1
    assert len(list(tmp_path.glob("*.json"))) == 3


async def test_answers_take_no_more_room_than_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MAX_BYTES", 3000)
    monkeypatch.setattr(recording, "_LARGEST", 3000)
    kept = Recordings(tmp_path)
    for name in "abcdef":
        await kept.put(name, answer("x" * 1000))
    await kept.put("huge", answer("x" * 5000))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.json")) <= 3000
    assert kept.counts["too_large"] == 1
    assert len(kept) == 2


async def test_a_damaged_answer_is_none_and_counted(tmp_path: Path) -> None:
    kept = Recordings(tmp_path)
    await kept.put("a", answer("x"))
    (tmp_path / "a.json").write_text('{"api": 3}')
    assert await kept.get("a") is None
    assert kept.counts["unreadable"] == 1


async def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterNotSetUp, match="directory of recorded answers"):
        Recordings(tmp_path / "file" / "answers")


async def test_the_audit_log_is_rotated_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_MAX_BYTES", 400)
    monkeypatch.setattr(audit, "_FILES", 2)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(20):
        await log.write(line(f"tool{number}"))
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.1.jsonl", "audit.2.jsonl", "audit.jsonl"]
    tools = [
        json.loads(one)["tool"]
        for name in ("audit.2.jsonl", "audit.1.jsonl", "audit.jsonl")
        for one in (tmp_path / name).read_text().splitlines()
    ]
    assert tools == [f"tool{number}" for number in range(20 - len(tools), 20)]
    assert all((tmp_path / name).stat().st_size <= 400 for name in files)
    assert os.stat(tmp_path / "audit.jsonl").st_mode & 0o077 == 0


async def test_the_audit_log_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in ("first", "second"):
        log = AuditLog(tmp_path / "audit.jsonl")
        await log.write(line(name))
        log.close()
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2

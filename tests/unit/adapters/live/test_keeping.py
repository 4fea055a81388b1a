"""What is kept on disk of live calls, and how their tools are named."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from actors.ports.errors import AdapterNotSetUp
from adapters.live import audit, recording
from adapters.live.audit import AuditLine, AuditLog
from adapters.live.names import tool_names
from adapters.live.recording import Recorded, Recordings

pytestmark = pytest.mark.anyio
LINE = AuditLine(time=1.0, api="a", tool="", call="c", mode="live", source="live", outcome="ok")


def answer(text: str) -> Recorded:
    return Recorded(api="a", tool="t", time=1.0, text=text)


def test_calls_are_told_apart_by_api_tool_and_arguments_and_named_for_this_user_alone(tmp_path: Path) -> None:
    first, again = Recordings(tmp_path / "answers"), Recordings(tmp_path / "answers")
    assert first.digest("a", "t", {"x": 1, "y": {"b": 1}}) == again.digest("a", "t", {"y": {"b": 1}, "x": 1})
    calls = [("a", "t", {"x": 1}), ("b", "t", {"x": 1}), ("a", "u", {"x": 1}), ("a", "t", {"x": "1"})]
    assert len({again.digest(*call) for call in calls}) == 4
    assert (tmp_path / "answers" / "digest.key").stat().st_mode & 0o077 == 0


async def test_answers_take_no_more_room_than_they_are_given_and_the_oldest_go(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(recording, "_ENTRIES", 3)
    monkeypatch.setattr(recording, "_LARGEST", 3000)
    kept = Recordings(tmp_path)
    for name in "abcd":
        await kept.put(name, answer(name))
    assert [await kept.get(name) is not None for name in "abcd"] == [False, True, True, True]
    assert kept.counts["evicted"] == 1
    await kept.put("huge", answer("x" * 5000))
    assert (kept.counts["too_large"], len(list(tmp_path.glob("*.json")))) == (1, 3)


async def test_a_damaged_answer_is_none_and_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    kept = Recordings(tmp_path)
    await kept.put("a", answer("x"))
    (tmp_path / "a.json").write_text('{"api": 3}')
    assert await kept.get("a") is None
    assert kept.counts["unreadable"] == 1
    with pytest.raises(AdapterNotSetUp, match="directory of recorded answers"):
        Recordings(tmp_path / "digest.key" / "answers")


async def test_the_audit_log_goes_on_where_it_was_and_is_rotated(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit, "_MAX_BYTES", 400)
    monkeypatch.setattr(audit, "_FILES", 2)
    for numbers in (range(17), range(17, 20)):
        log = AuditLog(tmp_path / "audit.jsonl")
        for number in numbers:
            await log.write(msgspec.structs.replace(LINE, tool=f"tool{number}"))
        log.close()
    names = ["audit.2.jsonl", "audit.1.jsonl", "audit.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    tools = [json.loads(one)["tool"] for name in names for one in (tmp_path / name).read_text().splitlines()]
    assert tools == [f"tool{number}" for number in range(20 - len(tools), 20)]
    assert all((tmp_path / name).stat().st_size <= 400 for name in names)
    assert os.stat(tmp_path / "audit.jsonl").st_mode & 0o077 == 0


def test_a_name_that_is_legal_stays_and_others_become_legal_unique_and_the_same_in_any_order():
    long = ("operation_" * 9 + "a", "operation_" * 9 + "b")
    given = ["read_file", "get-env", "GET /users/{id}", "a.b", "a_b", "a/b", *long, "ünïcode", "日本", "語", ""]
    names = tool_names(given)
    kept = {"read_file": "read_file", "get-env": "get-env", "GET /users/{id}": "GET_users_id", "a_b": "a_b"}
    assert kept.items() <= names.items()
    assert len(set(names.values())) == len(given)
    assert all(0 < len(name) <= 64 and name.isascii() for name in names.values())
    assert tool_names(reversed(given)) == names

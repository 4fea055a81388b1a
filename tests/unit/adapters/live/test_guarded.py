"""What the guard around a live API lets through, and what it answers in its place."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.live import CallResult
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.limits import RateSettings, WindowBreakerSettings
from adapters.live.policy import PolicySettings
from adapters.live.recording import Recordings
from tests.support.scripted_live_api import ScriptedLiveApi, operation
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
RETURNS = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "made": {"type": "string", "format": "date"}},
}
TOOLS = (
    operation("get_item", id={"type": "integer"}),
    operation("make_item", RETURNS, name={"type": "string"}),
    operation("drop_item", id={"type": "integer"}),
)
KEY = "t0p-secret/key"


def guarded(
    directory: Path, api: ScriptedLiveApi | None = None, clock: Any = lambda: 1000.0, **settings: Any
) -> tuple[Guarded, ScriptedLiveApi]:
    api = api or ScriptedLiveApi(*TOOLS)
    recordings, audit = Recordings(directory / "answers"), AuditLog(directory / "audit.jsonl")
    return Guarded(api, PolicySettings(**settings), recordings=recordings, audit=audit, clock=clock), api


def audited(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]


async def failing(tool: str, arguments: Mapping[str, Any]) -> CallResult:
    raise LiveApiUnavailable(f"nobody there, not even with {KEY}", 3.0)


async def test_a_shadow_run_executes_only_what_the_operator_calls_read_only(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, read_only=("get_*",), allow=("*",), simulate=False)
    read = await guard.call("get_item", {"id": 1})
    write = await guard.call("make_item", {"name": "x"})
    assert (read.source, read.error) == ("live", False)
    assert (write.source, write.error) == ("refused", True)
    assert "make_item" in write.text
    assert api.asked == [("get_item", {"id": 1})]


async def test_what_an_api_claims_of_itself_does_not_count(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path)
    assert guard.read_only("get_item")
    assert (await guard.call("get_item", {"id": 1})).source == "refused"
    assert not api.asked


async def test_a_live_run_executes_what_is_allowed_and_refuses_the_rest(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, mode="live", read_only=("get_*",), allow=("make_*",))
    sources = [(await guard.call(tool.name, {})).source for tool in TOOLS]
    assert sources == ["live", "live", "refused"]
    assert [name for name, _ in api.asked] == ["get_item", "make_item"]


async def test_a_dry_run_executes_nothing(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, mode="dry_run", read_only=("*",), allow=("*",))
    assert {(await guard.call(tool.name, {})).source for tool in TOOLS} == {"refused", "simulated"}
    assert not api.asked


async def test_what_is_denied_is_neither_offered_nor_executed(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, mode="live", allow=("*",), deny=("drop_*",))
    assert [tool.name for tool in await guard.tools()] == ["get_item", "make_item"]
    assert (await guard.call("drop_item", {"id": 1})).source == "refused"
    assert not api.asked


async def test_a_shadow_run_is_told_what_the_same_call_brought_before(tmp_path: Path) -> None:
    live, _ = guarded(tmp_path, mode="live", allow=("*",))
    told = await live.call("make_item", {"name": "x"})
    shadow, api = guarded(tmp_path, clock=lambda: 1060.0)
    again = await shadow.call("make_item", {"name": "x"})
    assert (again.source, again.age) == ("recorded", 60.0)
    assert (again.text, again.structured) == (told.text, told.structured)
    assert (await shadow.call("make_item", {"name": "y"})).source == "simulated"
    assert not api.asked


async def test_a_recorded_answer_can_be_too_old(tmp_path: Path) -> None:
    live, _ = guarded(tmp_path, mode="live", allow=("*",))
    await live.call("get_item", {"id": 1})
    shadow, _ = guarded(tmp_path, clock=lambda: 1060.0, max_age=59.0)
    assert (await shadow.call("get_item", {"id": 1})).source == "refused"


async def test_a_failed_call_is_not_recorded(tmp_path: Path) -> None:
    async def refusing(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        return CallResult(text="no", error=True)

    live, _ = guarded(tmp_path, ScriptedLiveApi(*TOOLS, answer=refusing), mode="live", allow=("*",))
    await live.call("get_item", {"id": 1})
    shadow, _ = guarded(tmp_path)
    assert (await shadow.call("get_item", {"id": 1})).source == "refused"


async def test_a_simulated_answer_is_marked_and_follows_the_schema_and_the_arguments(tmp_path: Path) -> None:
    guard, _ = guarded(tmp_path)
    result = await guard.call("make_item", {"name": "lamp"})
    assert result.source == "simulated"
    assert result.text.startswith("(simulated")
    assert result.structured == {"id": 1, "name": "lamp", "made": "2000-01-01"}


async def test_an_agents_mistake_is_one_in_a_shadow_run_too(tmp_path: Path) -> None:
    guard, _ = guarded(tmp_path)
    result = await guard.call("make_item", {"nmae": "lamp"})
    assert result.error
    assert "nmae: no such argument; did you mean name?" in result.text


async def test_a_read_that_cannot_be_made_is_answered_from_the_record_in_a_shadow_run_alone(tmp_path: Path) -> None:
    live, api = guarded(tmp_path, mode="live", allow=("*",))
    await live.call("get_item", {"id": 1})
    api.answer = failing
    with pytest.raises(LiveApiUnavailable):
        await live.call("get_item", {"id": 1})
    shadow, _ = guarded(tmp_path, api, read_only=("get_*",))
    assert (await shadow.call("get_item", {"id": 1})).source == "recorded"
    with pytest.raises(LiveApiUnavailable):
        await shadow.call("get_item", {"id": 2})


async def test_an_unknown_tool_is_refused_and_looked_for_once(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path)
    for _ in range(5):
        with pytest.raises(LiveApiRefused):
            await guard.call("invented", {})
    assert api.listed == 1


@pytest.mark.promise
async def test_secrets_are_in_no_answer_record_audit_log_or_error(tmp_path: Path) -> None:
    leaks = {
        "plain": KEY,
        "in_url": "https://x.example/?k=t0p-secret%2Fkey",
        "basic": "dDBwLXNlY3JldC9rZXk=",
        "access_token": "abc123abc123abc123abc123",
        "other": "their key is sk-proj-abcdefghij0123456789abcdef",
        KEY: 1,
    }

    async def leaking(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        return CallResult(text=json.dumps(leaks), structured=leaks, mismatch=f"{KEY} is odd")

    api = ScriptedLiveApi(*TOOLS, answer=leaking, secrets=frozenset({KEY}))
    with structlog.testing.capture_logs() as logs:
        guard, _ = guarded(
            tmp_path, api, mode="live", allow=("*",), breaker=WindowBreakerSettings(failures=1, first_wait=60)
        )
        shown = str(await guard.call("get_item", {"id": 1}))
        api.answer = failing
        with pytest.raises(LiveApiUnavailable) as caught:
            await guard.call("make_item", {"name": KEY})
        with pytest.raises(LiveApiRefused):
            await guard.call(f"tool-{KEY}", {})
    kept = "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    everything = "\n".join((shown, str(caught.value), repr(logs), kept, guard.health.error))
    for secret in (KEY, "t0p-secret%2Fkey", "dDBwLXNlY3JldC9rZXk", "abc123abc123", "sk-proj-abcdefghij"):
        assert secret not in everything
    assert caught.value.retry_after == 3.0
    assert caught.value.__cause__ is None
    assert guard.scrubbed["held"] >= 4
    assert "get_item" in kept


async def test_megabytes_are_cut(tmp_path: Path) -> None:
    async def long(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        return CallResult(text="x" * 10_000_000, structured=["x" * 10_000_000])

    guard, _ = guarded(tmp_path, ScriptedLiveApi(*TOOLS, answer=long), mode="live", allow=("*",), max_text=1000)
    result = await guard.call("get_item", {"id": 1})
    assert result.truncated
    assert len(result.text) < 1100
    assert result.structured is None


async def test_every_call_has_a_line_in_the_audit_log(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, read_only=("get_*",))
    await guard.call("get_item", {"id": 1})
    await guard.call("make_item", {"name": "x"})
    await guard.call("drop_item", {"id": 4})
    api.answer = failing
    with pytest.raises(LiveApiUnavailable):
        await guard.call("get_item", {"id": 2})
    with anyio.move_on_after(0.05):
        api.answer = lambda *_: anyio.sleep_forever()  # type: ignore[assignment,return-value]
        await guard.call("get_item", {"id": 1})
    lines = audited(tmp_path)
    assert [(line["tool"], line["source"], line["outcome"]) for line in lines] == [
        ("get_item", "live", "ok"),
        ("make_item", "simulated", "ok"),
        ("drop_item", "refused", "refused"),
        ("get_item", "", "LiveApiUnavailable"),
        ("get_item", "", "cancelled"),
    ]
    assert lines[0]["call"] == lines[4]["call"] != lines[3]["call"]
    assert lines[0].keys() == {"time", "api", "tool", "call", "mode", "source", "outcome", "status", "ms", "why"}


async def test_nothing_is_executed_while_the_audit_log_cannot_be_written(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path, mode="live", allow=("*",))
    (tmp_path / "audit.jsonl").mkdir()
    await guard.call("get_item", {"id": 1})
    with pytest.raises(LiveApiUnavailable, match="nothing is executed until it can"):
        await guard.call("get_item", {"id": 2})
    (tmp_path / "audit.jsonl").rmdir()
    await guard.call("get_item", {"id": 3})
    assert [arguments["id"] for _, arguments in api.asked] == [1, 3]
    assert len(audited(tmp_path)) == 3


async def test_a_broken_api_is_left_alone_and_said_so_once_and_its_return_once(tmp_path: Path) -> None:
    breaker = WindowBreakerSettings(failures=3, window=60, first_wait=10, max_wait=30)
    with structlog.testing.capture_logs() as logs:
        guard, api = guarded(tmp_path, mode="live", allow=("*",), breaker=breaker)
        good, api.answer = api.answer, failing
        for _ in range(10):
            with pytest.raises(LiveApiUnavailable):
                await guard.call("get_item", {"id": 1})
        assert len(api.asked) == 3
        assert guard.health.broken
        await anyio.sleep(11)
        with pytest.raises(LiveApiUnavailable):
            await guard.call("get_item", {"id": 1})  # the probe
        with pytest.raises(LiveApiUnavailable) as caught:
            await guard.call("get_item", {"id": 1})
        assert 15 < caught.value.retry_after <= 20
        assert len(api.asked) == 4
        api.answer = good
        await anyio.sleep(21)
        assert (await guard.call("get_item", {"id": 1})).source == "live"
        assert not guard.health.broken
    assert [entry["event"] for entry in logs] == ["live_api_broke", "live_api_recovered"]


async def test_calls_wait_for_their_turn_and_are_refused_when_that_takes_too_long(tmp_path: Path) -> None:
    slow = RateSettings(per_second=1.0, burst=1)
    guard, api = guarded(tmp_path, mode="live", allow=("*",), rate=slow, timeout=2.5)
    waits: list[float] = []

    async def call() -> None:
        try:
            await guard.call("get_item", {"id": 1})
        except LiveApiUnavailable as error:
            waits.append(error.retry_after)

    begun = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert anyio.current_time() - begun == 2.0
    assert len(api.asked) == 3
    assert len(waits) == 2
    assert min(waits) > 2.5
    assert guard.counts["rate_limited"] == 2


async def test_only_so_many_calls_are_under_way(tmp_path: Path) -> None:
    most = now = 0

    async def counting(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await anyio.sleep(1)
        now -= 1
        return CallResult(text="")

    guard, _ = guarded(tmp_path, ScriptedLiveApi(*TOOLS, answer=counting), mode="live", allow=("*",), concurrent=3)
    async with anyio.create_task_group() as group:
        for number in range(9):
            group.start_soon(guard.call, "get_item", {"id": number})
    assert most == 3


async def test_a_call_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def hanging(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        await anyio.sleep_forever()
        raise AssertionError

    guard, _ = guarded(tmp_path, ScriptedLiveApi(*TOOLS, answer=hanging), mode="live", allow=("*",), timeout=5)
    with pytest.raises(LiveApiUnavailable, match="no answer within 5 s"):
        await guard.call("get_item", {"id": 1})
    assert anyio.current_time() >= 5


async def test_closing_the_guard_closes_the_api(tmp_path: Path) -> None:
    guard, api = guarded(tmp_path)
    await guard.aclose()
    assert api.closed

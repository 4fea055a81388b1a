"""What the guard around a live API lets through, and what it answers in its place."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.live import CallResult
from adapters.live.audit import AuditLog
from adapters.live.guarded import Guarded
from adapters.live.limits import FAILURES, FIRST_WAIT, RateSettings
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
READS = {"read_only": ("get_*",)}
KEY = "t0p-secret/key"
LIVE: dict[str, Any] = {"mode": "live", "allow": ("*",)}


class Desk:
    """Guards on one directory, in front of one API."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.api = ScriptedLiveApi(*TOOLS, secrets=frozenset({KEY}))

    def guard(self, clock: Callable[[], float] = lambda: 1000.0, **settings: Any) -> Guarded:
        recordings, audit = Recordings(self.directory / "answers"), AuditLog(self.directory / "audit.jsonl")
        return Guarded(self.api, PolicySettings(**settings), recordings=recordings, audit=audit, clock=clock)

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def failing(tool: str, arguments: Mapping[str, Any]) -> CallResult:
    raise LiveApiUnavailable(f"nobody there, not even with {KEY}", 3.0)


async def refusing(tool: str, arguments: Mapping[str, Any]) -> CallResult:
    return CallResult(text="no", error=True)


@pytest.mark.promise
@pytest.mark.parametrize(
    ("settings", "sources"),
    [
        pytest.param({}, "refused simulated refused", id="what an api claims of itself does not count"),
        pytest.param({**READS, "allow": ("*",), "simulate": False}, "live refused refused", id="a shadow reads"),
        pytest.param({**READS, "mode": "live", "allow": ("make_*",)}, "live live refused", id="live"),
        pytest.param({**LIVE, "mode": "dry_run", "read_only": ("*",)}, "refused simulated refused", id="dry"),
        pytest.param({**LIVE, "deny": ("drop_*",)}, "live live refused", id="denied is not allowed"),
    ],
)
async def test_what_is_executed_is_what_the_operator_says(desk: Desk, settings: dict[str, Any], sources: str) -> None:
    guard = desk.guard(**settings)
    results = [await guard.call(tool.name, {}) for tool in TOOLS]
    assert [result.source for result in results] == sources.split()
    assert all(result.error == (result.source == "refused") for result in results)
    assert all(tool.name in result.text for tool, result in zip(TOOLS, results, strict=True) if result.error)
    live = [tool.name for tool, result in zip(TOOLS, results, strict=True) if result.source == "live"]
    assert [name for name, _ in desk.api.asked] == live
    denied = "deny" in settings
    assert [tool.name for tool in await guard.tools()] == [tool.name for tool in TOOLS[: 2 if denied else 3]]


async def test_a_shadow_run_is_told_what_the_same_call_brought_before_unless_that_is_too_old(desk: Desk) -> None:
    live = desk.guard(**LIVE)
    told = await live.call("make_item", {"name": "x"})
    shadow, strict = desk.guard(clock=lambda: 1060.0), desk.guard(clock=lambda: 1060.0, max_age=59.0)
    again = await shadow.call("make_item", {"name": "x"})
    assert (again.source, again.age) == ("recorded", 60.0)
    assert (again.text, again.structured) == (told.text, told.structured)
    assert (await shadow.call("make_item", {"name": "y"})).source == "simulated"
    assert (await strict.call("make_item", {"name": "x"})).source == "simulated"
    assert len(desk.api.asked) == 1
    desk.api.answer = refusing
    assert (await live.call("make_item", {"name": "z"})).source == "live"
    assert (await shadow.call("make_item", {"name": "z"})).source == "simulated", "what failed is not recorded"


async def test_a_simulated_answer_is_marked_and_follows_the_schema_and_a_mistake_is_one_here_too(desk: Desk) -> None:
    guard = desk.guard()
    result = await guard.call("make_item", {"name": "lamp"})
    assert result.source == "simulated"
    assert result.text.startswith("(simulated")
    assert result.structured == {"id": 1, "name": "lamp", "made": "2000-01-01"}
    mistaken = await guard.call("make_item", {"nmae": "lamp"})
    assert mistaken.error
    assert "nmae: no such argument; did you mean name?" in mistaken.text


async def test_a_read_that_cannot_be_made_is_answered_from_the_record_in_a_shadow_run_alone(desk: Desk) -> None:
    live = desk.guard(**LIVE)
    await live.call("get_item", {"id": 1})
    desk.api.answer = failing
    with pytest.raises(LiveApiUnavailable):
        await live.call("get_item", {"id": 1})
    shadow = desk.guard(**READS)
    assert (await shadow.call("get_item", {"id": 1})).source == "recorded"
    with pytest.raises(LiveApiUnavailable):
        await shadow.call("get_item", {"id": 2})


async def test_an_unknown_tool_is_refused_and_looked_for_once(desk: Desk) -> None:
    guard = desk.guard()
    for _ in range(5):
        with pytest.raises(LiveApiRefused):
            await guard.call("invented", {})
    assert desk.api.listed == 1
    await guard.aclose()
    assert desk.api.closed


@pytest.mark.promise
async def test_secrets_are_in_no_answer_record_audit_log_or_error(desk: Desk) -> None:
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

    desk.api.answer = leaking
    with structlog.testing.capture_logs() as logs:
        guard = desk.guard(**LIVE)
        shown = str(await guard.call("get_item", {"id": 1}))
        desk.api.answer = failing
        for _ in range(FAILURES):
            with pytest.raises(LiveApiUnavailable) as caught:
                await guard.call("make_item", {"name": KEY})
        with pytest.raises(LiveApiRefused):
            await guard.call(f"tool-{KEY}", {})
    kept = "".join(path.read_text() for path in desk.directory.rglob("*.json*"))
    everything = "\n".join((shown, str(caught.value), repr(logs), kept, guard.health.error))
    for secret in (KEY, "t0p-secret%2Fkey", "dDBwLXNlY3JldC9rZXk", "abc123abc123", "sk-proj-abcdefghij"):
        assert secret not in everything
    assert caught.value.retry_after == 3.0
    assert caught.value.__cause__ is None
    assert guard.scrubbed["held"] >= 4
    assert "get_item" in kept


async def test_megabytes_are_cut_and_a_call_that_hangs_is_given_up(desk: Desk) -> None:
    async def long(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        if tool == "make_item":
            await anyio.sleep_forever()
        return CallResult(text="x" * 10_000_000, structured=["x" * 10_000_000])

    desk.api.answer = long
    guard = desk.guard(**LIVE, max_text=1000, timeout=5)
    result = await guard.call("get_item", {"id": 1})
    assert result.truncated
    assert len(result.text) < 1100
    assert result.structured is None
    with pytest.raises(LiveApiUnavailable, match="no answer within 5 s"):
        await guard.call("make_item", {})
    assert anyio.current_time() >= 5


@pytest.mark.promise
async def test_every_call_has_a_line_in_the_audit_log(desk: Desk) -> None:
    guard = desk.guard(**READS)
    await guard.call("get_item", {"id": 1})
    await guard.call("make_item", {"name": "x"})
    await guard.call("drop_item", {"id": 4})
    desk.api.answer = failing
    with pytest.raises(LiveApiUnavailable):
        await guard.call("get_item", {"id": 2})
    with anyio.move_on_after(0.05):
        desk.api.answer = lambda *_: anyio.sleep_forever()  # type: ignore[assignment,return-value]
        await guard.call("get_item", {"id": 1})
    lines = desk.audited()
    assert [(line["tool"], line["source"], line["outcome"]) for line in lines] == [
        ("get_item", "live", "ok"),
        ("make_item", "simulated", "ok"),
        ("drop_item", "refused", "refused"),
        ("get_item", "", "LiveApiUnavailable"),
        ("get_item", "", "cancelled"),
    ]
    assert lines[0]["call"] == lines[4]["call"] != lines[3]["call"]
    assert lines[0].keys() == {"time", "api", "tool", "call", "mode", "source", "outcome", "status", "ms", "why"}


@pytest.mark.promise
async def test_nothing_is_executed_while_the_audit_log_cannot_be_written(desk: Desk) -> None:
    guard, path = desk.guard(**LIVE), desk.directory / "audit.jsonl"
    path.mkdir()
    await guard.call("get_item", {"id": 1})
    with pytest.raises(LiveApiUnavailable, match="nothing is executed until it can"):
        await guard.call("get_item", {"id": 2})
    path.rmdir()
    await guard.call("get_item", {"id": 3})
    assert [arguments["id"] for _, arguments in desk.api.asked] == [1, 3]
    assert len(desk.audited()) == 3


async def test_a_broken_api_is_left_alone_and_said_so_once_and_its_return_once(desk: Desk) -> None:
    with structlog.testing.capture_logs() as logs:
        guard = desk.guard(**LIVE)
        good, desk.api.answer = desk.api.answer, failing

        async def fails() -> LiveApiUnavailable:
            with pytest.raises(LiveApiUnavailable) as caught:
                await guard.call("get_item", {"id": 1})
            return caught.value

        for _ in range(10):
            await fails()
        assert (len(desk.api.asked), guard.health.broken) == (FAILURES, True)
        await anyio.sleep(FIRST_WAIT + 1)
        await fails()  # the probe
        assert 15 < (await fails()).retry_after <= 20
        assert len(desk.api.asked) == FAILURES + 1
        desk.api.answer = good
        await anyio.sleep(21)
        assert (await guard.call("get_item", {"id": 1})).source == "live"
        assert not guard.health.broken
    assert [entry["event"] for entry in logs] == ["live_api_broke", "live_api_recovered"]


async def test_calls_wait_for_their_turn_and_are_refused_when_that_takes_too_long(desk: Desk) -> None:
    guard = desk.guard(**LIVE, rate=RateSettings(per_second=1.0, burst=1), timeout=2.5)
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
    assert (len(desk.api.asked), len(waits), guard.counts["rate_limited"]) == (3, 2, 2)
    assert min(waits) > 2.5


async def test_only_so_many_calls_are_under_way(desk: Desk) -> None:
    async def slow(tool: str, arguments: Mapping[str, Any]) -> CallResult:
        await anyio.sleep(1)
        return CallResult(text="")

    desk.api.answer = slow
    guard, begun = desk.guard(**LIVE, concurrent=3), anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(9):
            group.start_soon(guard.call, "get_item", {"id": number})
    assert anyio.current_time() - begun == 3

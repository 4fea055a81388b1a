"""Redaction and disk live in a process of their own: whatever happens to it, agents are answered and nothing lost."""

import gzip
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import httpx
import pytest

from actors.messages import Exchange, Feedback
from daemon.tap.recorder import Recorder
from tests.support import patience
from tests.support.engine import Engine
from tests.support.patience import until
from tests.support.tapping import BODY, Rig, running_tap

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
SLOW = {"patterns": ({"name": "slow", "regex": "poison(a+)+$"},)}
"""A pattern of the kind that takes for ever; on "poisonaaaa…b" it does."""
MADE = Exchange(id="00" * 16, endpoint="/v1/x", request=b"{}", response=b"", status=200, started=1.0, duration=1.0)


def lives_and_losses(spool: Recorder) -> tuple[int, int]:
    """Recorders that ended, and records that were not written."""
    return spool.counts["restarts"], sum(number for name, number in spool.counts.items() if name.startswith("shed_"))


async def ask(http: httpx.AsyncClient, times: int = 1) -> None:
    for _ in range(times):
        assert (await http.post(CHAT, json=BODY)).status_code == 200


async def tell_scribe(rig: Rig, number: signal.Signals) -> None:
    """Send a signal to the scribe, once there is one and it has settled all that came before."""
    spool = rig.tap.spool
    if number is not signal.SIGCONT:
        await until(lambda: spool._link is not None and spool.waiting == 0, "the scribe has settled all")
    assert spool._child is not None
    os.kill(spool._child.pid, number)


@asynccontextmanager
async def stopped(directory: Path, engine: Engine, **settings: object) -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    """A tap whose scribe has written one record, and stands still."""
    async with running_tap(directory, engine.port, **settings) as rig, rig.http() as http:
        await ask(http)
        await rig.records()
        await tell_scribe(rig, signal.SIGSTOP)
        yield rig, http


@asynccontextmanager
async def reported(http: httpx.AsyncClient) -> AsyncIterator[list[int]]:
    """Feedback on its way; the list gets the status of its answer."""
    answers: list[int] = []

    async def tell() -> None:
        answers.append((await http.post("/v1/feedback", json={"response_id": "r", "outcome": 1})).status_code)

    async with anyio.create_task_group() as group:
        group.start_soon(tell)
        yield answers


@pytest.mark.promise
async def test_a_killed_scribe_is_replaced_and_loses_nothing(http: httpx.AsyncClient, rig: Rig) -> None:
    spool = rig.tap.spool
    for number in range(60):
        if number % 20 == 10:
            await tell_scribe(rig, signal.SIGSTOP)
        await ask(http)
        if number % 20 == 15:
            assert spool._child is not None
            assert spool.waiting >= 5, "it dies with work in its hands"
            spool._child.kill()
    await until(lambda: spool.waiting == 0, "the scribe has settled all")
    assert len({record.id for record in await rig.records_until(60)}) == 60
    assert lives_and_losses(spool) == (3, 0)


@pytest.mark.promise
async def test_a_report_that_comes_while_a_killed_scribe_is_replaced_is_taken_by_its_successor(
    http: httpx.AsyncClient, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.tap.recorder._FIRST_PAUSE", 1.0)
    await ask(http)
    await tell_scribe(rig, signal.SIGKILL)
    await until(lambda: rig.tap.spool.counts["restarts"], "it is known to have ended")
    async with reported(http) as answers:
        pass
    assert answers == [202]


@pytest.mark.promise
async def test_what_is_to_be_handed_over_the_moment_it_ends_goes_to_its_successor(rig: Rig) -> None:
    spool = rig.tap.spool
    await until(lambda: spool._link is not None, "there is a scribe")
    assert spool._link is not None
    spool._link.transport.abort()
    await anyio.lowlevel.checkpoint()
    assert spool._link is not None, "the tap has not heard of it yet"
    assert spool.offer(MADE)
    spool._hand_over()
    assert [kept.id for kept in await rig.records(1)] == [MADE.id]
    assert lives_and_losses(spool) == (1, 0)


@pytest.mark.promise
async def test_a_scribe_that_cannot_be_started_costs_no_call_and_no_record(
    http: httpx.AsyncClient, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable"))
    with monkeypatch.context() as patch:
        await until(lambda: rig.tap.spool._link is not None, "there is a scribe")
        patch.setattr("subprocess.Popen", refused)
        await tell_scribe(rig, signal.SIGKILL)
        await until(lambda: refused.call_count == 2, "it is tried again")
        await ask(http, 3)
    await rig.records(3)


@pytest.mark.promise
async def test_a_bug_in_whoever_waits_for_a_record_costs_no_other(http: httpx.AsyncClient, rig: Rig) -> None:
    assert rig.tap.spool.offer(MADE, Mock(side_effect=RuntimeError("a bug")))
    await until(lambda: rig.tap.spool.counts["restarts"] == 1, "it met the bug")
    await ask(http)
    assert len(await rig.records_until(2)) == 2


async def test_a_silent_scribe_is_killed_and_replaced(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.tap.recorder.SILENCE_SECONDS", 8 * patience.SLOW)
    async with stopped(tmp_path, engine) as (rig, http):
        await ask(http)
        spool = rig.tap.spool
        await until(lambda: spool._sent, "it is handed over")
        spool._silence.reschedule(0.0)  # long ago: its successor has all of the time again
        await rig.records()
        assert spool.counts["restarts"] == 1


@pytest.mark.promise
async def test_what_memory_cannot_hold_is_shed_and_counted(tmp_path: Path, engine: Engine) -> None:
    async with stopped(tmp_path, engine, spool_memory_bytes=20_000) as (rig, http):
        await ask(http, 30)
        assert rig.tap.spool.counts["shed_memory"] > 0
        assert rig.tap.spool.waiting + rig.tap.spool.counts["shed_memory"] == 30
        await tell_scribe(rig, signal.SIGCONT)
        await until(lambda: rig.tap.spool.waiting == 0, "the scribe has settled all")


async def test_a_record_that_takes_too_long_to_search_is_kept_without_its_bodies(
    tmp_path: Path, engine: Engine
) -> None:
    poison = {**BODY, "messages": [{"role": "user", "content": "poison" + "a" * 40 + "b"}]}
    numbers = " ".join(f"00{49171000000 + number}" for number in range(100_000)).encode()
    async with running_tap(tmp_path, engine.port, redaction=SLOW) as rig, rig.http() as http:
        for content in (json.dumps(BODY).encode(), json.dumps(poison).encode(), gzip.compress(numbers), b"{}"):
            await http.post(CHAT, content=content)
        records = await rig.records_until(4)
        kept = [(bool(record.request), record.finds.get("unreadable", 0)) for record in records]
        assert sorted(kept) == [(False, 1), (False, 1), (True, 0), (True, 0)]
        assert lives_and_losses(rig.tap.spool) == (0, 0)


async def killing(rig: Rig, enough: Callable[[], object]) -> None:
    """Kill whoever has been handed something and has not come to read it yet."""
    spool = rig.tap.spool
    while not enough():
        if spool._sent and spool._child is not None:
            spool._child.kill()
        await anyio.sleep(0.005)


@pytest.mark.promise
async def test_of_a_call_that_two_recorders_ended_over_the_head_is_kept_and_the_others_are_whole(
    tmp_path: Path, engine: Engine
) -> None:
    async with stopped(tmp_path, engine) as (rig, http):
        spool = rig.tap.spool
        await ask(http)
        await killing(rig, lambda: spool.counts["restarts"] == 2)
        await ask(http)
        told = [record for record in await rig.records_until(2) if isinstance(record, Exchange)]
        whole = [(bool(call.request), call.complete, call.error, call.finds.get("unreadable", 0)) for call in told]
        assert sorted(whole) == [(False, False, "recorders ended over it", 1), (True, True, "", 0)]
        await until(lambda: spool.waiting == 0, "it is settled")
        assert (lives_and_losses(spool), spool.counts["unreadable_chat"]) == ((2, 0), 1)


@pytest.mark.promise
async def test_a_report_that_two_recorders_ended_over_is_kept_without_its_words_and_nobody_is_told_that_it_was_taken(
    tmp_path: Path, engine: Engine
) -> None:
    async with stopped(tmp_path, engine) as (rig, http):
        async with reported(http) as answers:
            await killing(rig, lambda: answers)
        (record,) = await rig.records_until(1)
        assert isinstance(record, Feedback)
        assert (answers, record.outcome, record.text) == ([503], 1.0, "[REDACTED:unreadable]")


@pytest.mark.promise
async def test_a_call_whose_head_no_recorder_survives_is_counted_as_lost(tmp_path: Path, engine: Engine) -> None:
    async with stopped(tmp_path, engine) as (rig, http):
        await ask(http)
        await killing(rig, lambda: rig.tap.spool.counts["shed_poison"])
        assert (rig.tap.spool.counts["shed_poison"], rig.tap.spool.waiting_bytes) == (1, 0)
        await ask(http)
        await rig.records_until(1)


TAKES_NOTHING = """
import os, pathlib, time
gate, write = pathlib.Path({gate!r}), os.write
def stuck(file, data):
    while gate.exists() and gate.read_text() == "hangs":
        time.sleep(0.01)
    if gate.exists() and gate.read_text() == "bug":
        gate.unlink()
        raise RuntimeError("a bug")
    if gate.exists():
        raise OSError(28, "No space left on device")
    return write(file, data)
os.write = stuck
"""


def patched_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says what the disk of recorders does from now on; it works if there is none."""
    gate = directory / "gate"
    (directory / "sitecustomize.py").write_text(TAKES_NOTHING.format(gate=str(gate)))
    monkeypatch.setenv("PYTHONPATH", f"{directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr("daemon.tap.recorder.SILENCE_SECONDS", 2 * patience.SLOW)
    return gate


@pytest.mark.promise
async def test_a_bug_in_writing_costs_a_recorder_and_no_record(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = patched_disk(tmp_path, monkeypatch)
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        await ask(http)
        await rig.records()
        gate.write_text("bug")
        await ask(http, 3)
        assert len(await rig.records_until(3)) == 3
        assert lives_and_losses(rig.tap.spool) == (1, 0)


@pytest.mark.promise
@pytest.mark.parametrize("how", ["hangs", "is full"])
async def test_a_disk_that_takes_nothing_for_long_costs_no_record_and_no_recorder(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    gate, silence = patched_disk(tmp_path, monkeypatch), 2 * patience.SLOW
    monkeypatch.setattr("daemon.tap.proxy._FEEDBACK_SECONDS", 0.5)
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        spool, asked, end = rig.tap.spool, 0, anyio.current_time() + 2.5 * silence
        await ask(http)
        await rig.records()
        gate.write_text(how)
        while anyio.current_time() < end:
            await ask(http, 5)
            asked += 5
            await anyio.sleep(0.05)
        async with reported(http) as answers:
            await until(lambda: answers, "somebody is told to come again")
        assert answers == [503]
        assert spool.waiting >= asked
        gate.unlink()
        kept = await rig.records_until(asked)
        assert len({record.id for record in kept if isinstance(record, Exchange)}) == asked
        counts = rig.tap.counts
        await until(lambda: counts.feedback, "the report is counted")
        assert counts.feedback == {"unavailable": 1}, "whoever was told to come again was not told that it was taken"
        assert (counts.requests["refused", 503], counts.requests["feedback", 202]) == (1, 0)
        assert lives_and_losses(spool) == (0, 0)


@pytest.mark.promise
async def test_feedback_is_taken_only_when_it_is_on_disk(tmp_path: Path, engine: Engine) -> None:
    async with stopped(tmp_path, engine) as (rig, http):
        async with reported(http) as answers:
            await until(lambda: rig.tap.spool.waiting == 1, "it is taken")
            await ask(http)
            assert answers == []
            await tell_scribe(rig, signal.SIGCONT)
        assert answers == [202]
        await rig.records(2)

"""Two real vLLMs behind the tap: a version goes from its trial at one to both, and agents notice nothing."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from actors.deployment.canary import MOST_SHARE, CanarySettings
from actors.ports.errors import EngineRejected
from actors.statistics.intervals import wilson
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from tests.support import checkpoints
from tests.support.epochs import seen_epoch
from tests.support.patience import Late, until, within
from tests.support.process import alive, family
from tests.support.rolling import Rolling, rolling
from tests.vllm.conftest import KEY, Fleet, Started

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
CANARY = CanarySettings(seconds=0.0, runs=10)
CONVERSATIONS = 120
"""That begin while the trial is on."""
SURE = 0.9999
TURNS, TOKENS, CLIENTS = 2, 8, 4


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """Directory with the versions 0 and 1."""
    versions = tmp_path / "numbered"
    for number in (0, 1):
        checkpoints.write_manifest(checkpoints.write(versions / f"v{number:06d}", number + 1), number)
    return versions


@pytest.fixture
async def rolled(tiny: Started, twin: str, numbered: Path, tmp_path: Path) -> AsyncIterator[Rolling]:
    urls = {"one": tiny.url, "two": twin}
    for url in urls.values():
        epoch = seen_epoch(url, KEY)
        job = SwapJob(engine=url, path=str(numbered / "v000000"), version=0, result="", epoch=epoch)
        async with VllmEngine(url, key=KEY) as engine:
            assert (await perform(job, engine)).result == "swapped"
    async with rolling(tmp_path, numbered, urls, CANARY, {"two": KEY}) as running:
        yield running


class Agents:
    """Agents that hold one conversation after the other; no id tells which call belongs to which."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=within(), headers={"authorization": f"Bearer {KEY}"})
        self.begun = 0
        self.answers: list[tuple[float, bool, str]] = []
        """(when it was complete, whether it was streamed, why it is no whole answer)."""

    async def work(self, *, stream: bool) -> None:
        while True:
            self.begun += 1
            messages: list[dict[str, Any]] = [{"role": "user", "content": f"conversation {self.begun}: go on"}]
            for _ in range(TURNS):
                text, problem = await self._ask(messages, stream)
                self.answers.append((time.monotonic(), stream, problem))
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]

    async def _ask(self, messages: list[dict[str, Any]], stream: bool) -> tuple[str, str]:
        """Text of an answer, and why it is not whole."""
        body = {"model": "tiny", "messages": messages, "max_tokens": TOKENS, "ignore_eos": True, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        answer = await self._http.post("/v1/chat/completions", json=body)
        if answer.status_code != 200:
            return "", f"status {answer.status_code}: {answer.text}"
        if not stream:
            whole = answer.json()
            return whole["choices"][0]["message"]["content"] or "", _short(whole["usage"])
        # Not str.splitlines(): tiny weights say all kinds of separators.
        *events, end = [line[6:] for line in answer.content.split(b"\n") if line.startswith(b"data: ")]
        if end != b"[DONE]":
            return "", f"the stream ended with {end!r}"
        chunks = [json.loads(event) for event in events]
        text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        return text, _short(chunks[-1]["usage"])

    async def aclose(self) -> None:
        await self._http.aclose()


def _short(usage: dict[str, int]) -> str:
    return "" if usage["completion_tokens"] == TOKENS else f"{usage['completion_tokens']} tokens"


async def engines_of(rolled: Rolling, calls: int) -> dict[int, list[str]]:
    """The engines of each conversation that the tap kept, one a turn."""
    seen: dict[int, list[str]] = {}
    for record in await rolled.tap.records_until(calls):
        opening = json.loads(record.request)["messages"][0]["content"]
        seen.setdefault(int(opening.split()[1].rstrip(":")), []).append(record.engine)
    return seen


async def test_an_engine_with_a_key_answers_who_shows_it(twin: str) -> None:
    async with VllmEngine(twin) as stranger, VllmEngine(twin, key=KEY) as known:
        with pytest.raises(EngineRejected, match="401"):
            await stranger.tokenize("a")  # it asks for the name of the model first, which wants the key
        assert await known.tokenize("a")


async def test_a_version_rolls_over_both_without_a_lost_request_and_the_canary_gets_its_share(
    rolled: Rolling, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = Agents(rolled.tap.url)
    async with anyio.create_task_group() as group:
        await rolled.tick()
        for number in range(2 * CLIENTS):
            group.start_soon(lambda stream=number % 2 == 0: agents.work(stream=stream))
        await rolled.promote(1)
        await ticked(rolled, ("one", "swapped"))
        assert await rolled.tick() == []  # the first look at the trial gives it its share
        await until(lambda: canary_share(rolled), "the tap has read of it")
        first = agents.begun + 1

        async def enough() -> bool:
            assert await rolled.tick() == []  # the tap must hear that the trial is still watched
            return agents.begun >= first + CONVERSATIONS

        await until(enough, f"{CONVERSATIONS} conversations", 600, every=2.0)
        last = agents.begun
        await rolled.succeed(40)
        await ticked(rolled, ("", "roll_on"), ("two", "swapped"))
        answers = len(agents.answers)
        await until(lambda: len(agents.answers) > answers + 2 * CLIENTS, "answers after the last swap")
        group.cancel_scope.cancel()
    assert [await engine.version() for engine in rolled.engines.values()] == [1, 1]
    await agents.aclose()

    (one,), (two,) = rolled.doors["one"].pauses, rolled.doors["two"].pauses
    assert one[1] < two[0], "one always serves"
    lost = [problem for _, _, problem in agents.answers if problem]
    assert lost == []
    seen = await engines_of(rolled, len(agents.answers))
    strayed = [number for number, engines in seen.items() if len(set(engines)) > 1]
    assert strayed == [], "a conversation stays where it began"
    new = [engines[0] for number, engines in seen.items() if first <= number < last]
    canary = new.count("one")
    low, high = wilson(canary, len(new), SURE)
    streamed = sum(stream for _, stream, _ in agents.answers)
    with capsys.disabled():
        print(
            f"\nrolled over two vLLMs: {len(agents.answers)} answers ({streamed} streamed), {len(lost)} failed or cut; "
            f"paused {one[1] - one[0]:.3f} and {two[1] - two[0]:.3f} s; canary {canary} of {len(new)} conversations = "
            f"{canary / len(new):.3f} ({low:.3f} to {high:.3f} at {SURE}), {MOST_SHARE} configured; "
            f"{len(strayed)} of {len(seen)} changed engines"
        )
    assert low < MOST_SHARE < high
    left = [path for path in (tmp_path / "swaps").iterdir() if path.is_file()]
    assert left
    assert not [path for path in left if KEY.encode() in path.read_bytes()], "the key of `two` is in no file"


async def test_a_launcher_that_is_killed_takes_all_of_vllm_with_it_though_the_engine_hangs(
    fleet: Fleet, twin: str
) -> None:
    # The last one here: there is no twin afterwards.
    launcher = fleet.launcher("twin")
    server = family(launcher)[1:]
    assert len(server) >= 3  # API server, engine core, worker
    # An engine that hangs answers nobody, and the API server waits for whoever asked it.
    for pid in server[1:]:
        os.kill(pid, signal.SIGSTOP)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=3.0) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"{twin}/weight_info")
    os.kill(launcher, signal.SIGKILL)

    await until(lambda: not any(alive(pid) for pid in server), f"{server} are gone", 120)


async def ticked(rolled: Rolling, *expected: tuple[str, str]) -> None:
    """One tick, and what came of it. A swap that was put off, because an engine did not read its weights in time, broke
    no promise: two vLLMs on two cores keep each other waiting for minutes now and then."""
    told = await rolled.tick()
    if told == list(expected[: len(told)]) and len(told) < len(expected):
        raise Late(f"{expected[len(told)]}: the engine did not read its weights in time")
    assert told == list(expected)


async def canary_share(rolled: Rolling) -> float:
    """What the tap gives to the canary."""
    async with httpx.AsyncClient(timeout=within()) as http:
        shown = (await http.get(f"{rolled.tap.admin}/metrics")).text.splitlines()
    return max(
        float(line.rpartition(" ")[2]) for line in shown if line.startswith("evolved_tap_upstream_canary_share{")
    )

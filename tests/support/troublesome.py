"""An environment that does in `step` what its agent asks for: hang, crash, talk without end."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import anyio

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed


class TroublesomeEpisode:
    """Tools: `hang`, `sleep` (so that a cancellation could work), `crash`, `segfault`, `raise`, `talk`, `variables`,
    `fork` and `finish`; anything else is counted."""

    def __init__(self, tools: list[dict[str, Any]]) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Do something."}]
        self.tools = tools
        self.count, self.done = 0, False

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        name = calls[0].name if calls else ""
        self.count += 1
        if name == "hang":
            while True:
                time.sleep(3600)  # noqa: ASYNC251  # that is what it is for
        if name == "sleep":
            await anyio.sleep(3600)
        if name == "crash":
            os._exit(3)
        if name == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "raise":
            raise RuntimeError("a bug of the environment")
        if name == "talk":
            return Observation("x" * 50_000_000, False)
        if name == "variables":
            return Observation(str(dict(os.environ)) + os.getcwd(), False)
        if name == "fork":
            return Observation(str(subprocess.Popen(["sleep", "3600"]).pid), False)  # noqa: ASYNC220
        self.done = self.done or name == "finish"
        return Observation(str(self.count), self.done)

    async def evaluate(self) -> float:
        return float(self.done)

    async def aclose(self) -> None:
        return


class Troublesome:
    """Args:
    bad: "build", "sample" or "reset", where it fails, or hangs with "hang-sample" and "hang-reset".
    """

    name = "troublesome"

    def __init__(self, bad: str = "") -> None:
        if bad == "build":
            raise ValueError("no data")
        self._bad = bad

    def profile(self) -> Profile:
        return Profile(name=self.name, description="does what it is told")

    def tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "finish", "parameters": {"type": "object"}}}]

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        if families is not None:
            raise ValueError(f"no family {families!r}")
        if self._bad == "sample":
            os._exit(1)
        if self._bad == "hang-sample":
            time.sleep(3600)
        return Task(id=derived_id(self.name, split, seed), goal="Do something.", environment=self.name)

    async def reset(self, task: Task) -> TroublesomeEpisode:
        if self._bad == "reset":
            raise EnvironmentFailed("not today")
        if self._bad == "hang-reset":
            time.sleep(3600)  # noqa: ASYNC251
        return TroublesomeEpisode(self.tools())

"""Environments in worker processes, for tests: opened and closed, played a turn, looked at from outside."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from actors.messages import ToolCall
from actors.ports.environments import Episode, Observation
from adapters.environments.workers import WorkerEnvironment

TROUBLE = "tests.support.troublesome:Troublesome"


@asynccontextmanager
async def workers(target: str = TROUBLE, /, **options: Any) -> AsyncIterator[WorkerEnvironment]:
    environment = WorkerEnvironment(target, **{"workers": 1, **options})
    try:
        yield environment
    finally:
        await environment.aclose()


async def begun(environment: WorkerEnvironment) -> Episode:
    return await environment.reset(environment.sample(0, "train", None))


async def doing(episode: Episode, name: str) -> Observation:
    return await episode.step([ToolCall(name, "{}", "call-0")], "")

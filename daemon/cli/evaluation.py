"""An evaluation: held-out tasks of an environment, attempted by the weights that an engine has now.

The same exam as the gate's (`actors.gate.exam`), with task numbers of its own: what people measure by hand is not what
the gate selects by. The command line to it is `eval_cli`.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from actors.gate.exam import Exam, ExamSettings
from actors.gate.scores import Summary, summarize
from actors.ports.environments import Environment
from actors.ports.errors import EngineError
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.system.errors import DependencyUnavailable
from adapters.engines.client import EngineClient
from daemon.errors import CommandFailed


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    environment: str
    engine: str
    version: int
    """Weight version that the engine had, -1 if its label is no number or it changed in between."""
    n: int
    seconds: float
    lost: int
    """Tasks of which an attempt broke down; they count with the attempts that are left."""
    total: Summary
    families: dict[str, Summary]
    """By the goal with its names masked."""


async def evaluate(
    settings: ExamSettings,
    environment: Environment,
    url: str,
    tasks: int,
    seed: int,
    progress: Callable[[int, int, int], None] = lambda played, all_, solved: None,
    key: str = "",
    harness: HarnessConfig = PLAIN,
) -> Result:
    """Play the exam's first `tasks` tasks against the engine at `url`.

    Args:
        progress: told after each attempt: attempts played, attempts in all, attempts that solved their task.
        key: the engine's API key, if it has one.
        harness: in which attempts are played.

    Raises:
        CommandFailed: the engine is away, there is no such family, or too many episodes broke down.
    """
    scores: dict[int, list[bool]] = {}
    began = time.monotonic()
    async with EngineClient(url, key=key) as engine:
        exam = Exam(settings, environment=environment, engine=engine, seed=seed, harness=harness)
        try:
            exam.task(0)
        except ValueError as error:
            raise CommandFailed(f"--families {settings.families}: {error}") from error
        version = await _version(engine)
        played = solved = 0

        def record(task: int, outcome: bool) -> None:
            nonlocal played, solved
            played, solved = played + 1, solved + outcome
            scores.setdefault(task, []).append(outcome)
            progress(played, tasks * settings.attempts, solved)

        try:
            lost = await exam.play(-1, dict.fromkeys(range(tasks), 0), record)
        except DependencyUnavailable as error:
            await _version(engine)  # says so if the engine is gone
            raise CommandFailed(f"{error}; the engine at {url} answers, see what it and the environment log") from error
        unchanged = await _version(engine) == version
    families = {
        name: summarize([scores[task] for task in numbers]) for name, numbers in exam.families(sorted(scores)).values()
    }
    return Result(
        environment=environment.name,
        engine=url,
        version=version if unchanged else -1,
        n=settings.attempts,
        seconds=time.monotonic() - began,
        lost=len(lost),
        total=summarize(list(scores.values())),
        families=families,
    )


def as_json(result: Result) -> dict[str, Any]:
    """`result` with the names that people know the figures by."""

    def figures(found: Summary) -> dict[str, Any]:
        return {
            "tasks": found.tasks,
            "attempts": found.attempts,
            f"avg@{result.n}": msgspec.to_builtins(found.average),
            f"best@{result.n}": msgspec.to_builtins(found.best),
        }

    return {
        "environment": result.environment,
        "engine": result.engine,
        "version": result.version,
        "n": result.n,
        "seconds": round(result.seconds, 3),
        "lost": result.lost,
        **figures(result.total),
        "families": {name: figures(found) for name, found in result.families.items()},
    }


async def _version(engine: EngineClient) -> int:
    try:
        return await engine.version()
    except EngineError as error:
        raise CommandFailed(
            f"no engine answers at {engine.url}: {error}; start it (evolved engine --help), or name another (--engine)"
        ) from error

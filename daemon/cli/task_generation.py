"""`evolved tasks generate` without its command line: the questioner on its own, from a file into a file."""

import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from actors.tasks.questioner.errors import QuestionerError, TaskFileMalformed
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.solving import EngineSolver
from actors.tasks.questioner.state import QuestionerState, read, write
from adapters.engines.client import EngineClient
from adapters.environments.synthetic_tasks import SyntheticTasks
from daemon.composition import registry, values
from daemon.errors import CommandFailed, ConfigError
from daemon.settings.tables import Config


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made."""

    environment: str
    count: int
    seed: int
    out: Path
    resume: bool = False
    llm: bool = False
    """Goals are worded by the model in [llm]."""
    engine: str = ""
    """URL of the engine whose policy tries each task; empty: nobody does."""
    attempts: int = 4


def opened(path: Path) -> QuestionerState:
    """The tasks of a file."""
    try:
        return read(path)
    except TaskFileMalformed as error:
        raise CommandFailed(str(error)) from error


async def generate(
    config: Config, order: Order, progress: Callable[[QuestionerState], None] = lambda state: None
) -> QuestionerState:
    """Make tasks into `order.out`, which is whole after every round."""
    if order.out.exists() and not order.resume:
        raise CommandFailed(f"{order.out} is there already; --resume goes on with it, another --out begins anew")
    if order.llm and not config.llm.url:
        raise ConfigError("--llm: llm.url is empty; name a chat model in [llm]")
    if not order.out.parent.is_dir():
        raise CommandFailed(f"--out {order.out}: there is no directory {order.out.parent}")
    options = config.sandbox.options if order.environment == config.sandbox.environment else {}
    environment = registry.build("environment", order.environment, options)
    settings = msgspec.structs.replace(values.questioner(config), attempts=order.attempts if order.engine else 0)
    async with AsyncExitStack() as stack:

        def adapter(kind: str, chosen: values.Adapter) -> Any:
            built = registry.build(kind, *chosen)
            if hasattr(built, "aclose"):
                stack.push_async_callback(built.aclose)
            return built

        solver = None
        if order.engine:
            engine = await stack.enter_async_context(EngineClient(order.engine))
            solver = EngineSolver(engine, SyntheticTasks(environment), rng=random.Random(order.seed))
        try:
            generator = Generator(
                settings,
                environment,
                clock=time.monotonic,
                seed=order.seed,
                embedder=adapter("embedder", values.adapter(config, "embedder")),
                wording=adapter("wording", values.chat(config)) if order.llm else None,
                solver=solver,
                state=opened(order.out) if order.out.exists() else None,
            )

            def saved(state: QuestionerState) -> None:
                write(state, order.out)
                progress(state)

            return await generator.run(order.count, saved)
        except QuestionerError as error:
            raise CommandFailed(str(error)) from error
        except OSError as error:
            raise CommandFailed(f"{order.out} cannot be written: {error.strerror or error}") from error
        except ValueError as error:
            raise CommandFailed(f"sandbox.families = {settings.families!r}: {error}") from error


def figures(state: QuestionerState) -> dict[str, Any]:
    """What was proposed, kept and dropped, and how different the kept ones are."""
    counts = state.counts
    return {
        "environment": state.environment,
        "seed": state.seed,
        "ended": state.ended,
        "proposed": counts.get("proposed", 0),
        "kept": len(state.tasks),
        "dropped": state.reasons,
        "replays": counts.get("replays", 0),
        "replayed": counts.get("replayed", 0),
        "wording": {name.partition(".")[2]: n for name, n in counts.items() if name.startswith("wording.")},
        "worlds": state.round,
        **{name: counts.get(name, 0) for name in ("instances", "steps", "lost")},
    }

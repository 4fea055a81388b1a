"""The sandbox's environment as the settings want it, in worker processes or in this one, and its figures."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from actors.ports.environments import Environment
from actors.ports.models import Embedder, Grader, needs_reference
from adapters.environments.live import NAME as LIVE
from adapters.environments.live import LiveEnvironment
from adapters.environments.workers import WorkerEnvironment
from adapters.environments.workers.process import load
from adapters.live import LiveApi
from adapters.toolsearch import ToolIndex
from adapters.toolsearch.environment import SearchingEnvironment
from daemon.composition import registry as adapters
from daemon.errors import ConfigError
from daemon.figures import Figures, counter, gauge
from daemon.settings.tables import Sandbox

COUNTERS = (
    "opened", "closed", "refused", "deaths", "timeouts", "oversized", "reaped", "lost", "capped", "restarts",
    "created", "released", "failed",
)  # fmt: skip
"""What becomes of episodes and workers: `deaths` in mid-call, `reaped` because nobody used them, `lost` with their
worker, `capped` because too many were open; `created` and `released` over HTTP, `failed` calls there."""


def environment_figures(what: str, source: Any) -> Iterator[Metric]:
    """Of a `WorkerEnvironment` or an `EnvironmentService`."""
    events = {name: getattr(source, name) for name in COUNTERS if hasattr(source, name)}
    yield counter(f"evolved_environment_{what}", "What became of episodes and workers.", events, "what")
    yield gauge(f"evolved_environment_{what}_instances", "Episodes that are open.", source.instances)


def sandbox_environment(
    settings: Sandbox, registry: CollectorRegistry, live: LiveApi | None = None, grader: Grader | None = None
) -> Environment | None:
    """The environment that `settings` name, with its figures in `registry`; None if they name none."""
    if not settings.environment:
        return None
    if settings.environment == LIVE and live is not None:
        with adapters.making(f"sandbox.environment {LIVE!r}, sandbox.options"):
            return LiveEnvironment(live, grader, **settings.options)
    if grader is not None and needs_reference(grader):
        raise ConfigError(
            f"grader {grader.name} compares with a reference, and only goals of sandbox.environment = {LIVE!r} have"
            ' one: it could never grade. Set sandbox.grader = "open", or leave it out'
        )
    built = build_environment(settings.environment, settings.options, settings.workers)
    if isinstance(built, WorkerEnvironment):
        registry.register(Figures(partial(environment_figures, "workers"), built))
    return built


def searching(environment: Environment | None, settings: Sandbox, embedder: Embedder | None) -> Environment | None:
    """`environment` as `sandbox.tools_shown` wants it."""
    if environment is None or not settings.tools_shown:
        return environment
    return SearchingEnvironment(environment, partial(ToolIndex, embedder), settings.tools_shown)


def build_environment(name: str, options: Mapping[str, Any], workers: int = 0) -> Environment:
    """The environment `name`, an installed one's or `module:Class`, in `workers` processes; 0: in this one."""
    if not workers and ":" not in name:
        return adapters.build("environment", name, options)
    with adapters.making(f"environment {name}"):
        return WorkerEnvironment(name, options, workers=workers) if workers else load(name)(**options)

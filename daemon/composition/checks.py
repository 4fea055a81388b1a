"""What the file alone does not tell of the settings: whether those who take its free tables can do with them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from daemon.composition import registry, values
from daemon.composition.harness import harness
from daemon.errors import ConfigError
from daemon.live.registry import configured
from daemon.processes.tap_settings import redaction
from daemon.settings.tables import ALLOW_HOSTS, Config

NAMED = {
    "judge": "judge", "embedder": "embeddings", "extractor": "lessons.draw", "rewriter": "lessons.rewrite",
    "wording": "tasks.prefer", "grader": "sandbox.grader",
}  # fmt: skip
"""What names the adapter of each kind."""


def faults(config: Config) -> Iterator[str]:
    """What cannot work, each with its setting. Adapters are made to see it; environments are not, for some start worker
    processes. What was made is left to the end of the process, which has asked nobody anything."""
    looks: list[Callable[[], object]] = [
        *(partial(_adapter, config, kind, setting) for kind, setting in NAMED.items()),
        partial(_environment, config.sandbox.environment, config.sandbox.options),
        *(partial(configured, name, table) for name, table in config.apis.items() if name != ALLOW_HOSTS),
        partial(harness, config.sandbox, config.limits.turn_seconds), partial(values.questioner, config),
        partial(redaction, config),
    ]  # fmt: skip
    for look in looks:
        try:
            look()
        except ConfigError as error:
            yield str(error)


def _adapter(config: Config, kind: str, setting: str) -> None:
    try:
        values.built(config, kind)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error


def _environment(name: str, options: Mapping[str, Any]) -> None:
    if name and ":" not in name:
        registry.check_options(registry.find("environment", name), options, f"sandbox.options of {name!r}")

"""The daemon's engines as clients: those that serve by their names, the shadow engine, each with its API key."""

from pathlib import Path

from adapters.engines.vllm import VllmEngine
from daemon.errors import ConfigError
from daemon.settings.tables import SHADOW, Config


def engine_clients(config: Config) -> dict[str, VllmEngine]:
    """A client for each engine by name, to be closed by the caller."""
    named = {**{one.name: one for one in config.engines}, SHADOW: config.shadow}
    return {name: VllmEngine(one.url, name=name, key=_key(name, one.key_file)) for name, one in named.items()}


def _key(name: str, file: str) -> str:
    """The key in `file`, empty if no file is named."""
    if not file:
        return ""
    setting = f"engine {name}: key_file {file}"
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{setting}: {error}; write what the engine's --api-key is into it, and nothing else"
        ) from error
    if len(key.split()) != 1 or not key.isprintable():
        raise ConfigError(f"{setting}: it must hold one word, what the engine's --api-key is")
    return key

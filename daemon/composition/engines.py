"""The daemon's engines as clients: those that serve by their names, the shadow engine, each with its API key."""

from pathlib import Path

from adapters.engines.vllm import VllmEngine
from daemon.errors import ConfigError
from daemon.settings.config import SHADOW, Config, serving_engines


def engine_clients(config: Config) -> dict[str, VllmEngine]:
    """A client for each engine by name, to be closed by the caller."""
    engines = config.engines
    files = {SHADOW: ("shadow", engines.shadow.api_key_file)}
    if engines.fleet:
        files |= {one.name: (f"engines {one.name}", one.api_key_file) for one in engines.fleet}
    else:
        files |= {name: ("engines", engines.serving.api_key_file) for name in serving_engines(config)}
    urls = {**serving_engines(config), SHADOW: engines.shadow.url}
    return {name: VllmEngine(url, name=name, key=_key(*files[name])) for name, url in urls.items()}


def _key(where: str, file: str) -> str:
    """The key in `file`, empty if no file is named."""
    if not file:
        return ""
    setting = f"{where}: key_file {file}"
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{setting}: {error}; write what the engine's --api-key is into it, and nothing else"
        ) from error
    if len(key.split()) != 1 or not key.isprintable():
        raise ConfigError(f"{setting}: it must hold one word, what the engine's --api-key is")
    return key

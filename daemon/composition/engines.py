"""The daemon's engines as clients: those that serve by their names, the shadow engine, each with its API key."""

from adapters.engines.vllm import VllmEngine
from daemon.settings.secret import secret
from daemon.settings.tables import SHADOW, Config

_REMEDY = "write what the engine's --api-key is into it, and nothing else"


def engine_clients(config: Config) -> dict[str, VllmEngine]:
    """A client for each engine by name, to be closed by the caller."""
    named = {**{one.name: one for one in config.engines}, SHADOW: config.shadow}
    return {
        name: VllmEngine(one.url, name=name, key=secret(one.key_file, f"engine {name}: key_file", _REMEDY))
        for name, one in named.items()
    }

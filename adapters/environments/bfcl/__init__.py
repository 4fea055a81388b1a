"""BFCL's multi-turn categories, the real benchmark of the adapter layer."""

from adapters.environments.bfcl.environment import BfclEnvironment, BfclEpisode

__all__ = ["BfclEnvironment", "BfclEpisode"]

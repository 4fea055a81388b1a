"""AppWorld: ten apps of daily life with 457 APIs, and tasks that its own tests judge."""

from adapters.environments.appworld.environment import AppWorldEnvironment, AppWorldEpisode

__all__ = ["AppWorldEnvironment", "AppWorldEpisode"]

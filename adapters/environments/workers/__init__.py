"""Environments in processes of their own, so that what hangs or crashes in one costs its episode and nothing else.

Each worker process builds the environment once and forks a process for every episode, with a socket to us: a hung
episode is killed, a crashed one is seen as a closed socket, its neighbours notice nothing. A worker answers `sample`,
`profile` and `tools` itself. `environment` is our side of it, with `worker` and `link`; `process` is theirs; `wire` is
what they say to each other.
"""

from adapters.environments.workers.environment import WorkerEnvironment

__all__ = ["WorkerEnvironment"]

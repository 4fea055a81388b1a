"""`WorkerEnvironment`: an environment whose episodes are played in processes of their own."""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from actors.messages import Task
from actors.ports.environments import Profile, Split
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.remote import RemoteEpisode, remote_episode
from adapters.environments.workers import wire
from adapters.environments.workers.link import Ending, EpisodeProcess
from adapters.environments.workers.worker import Worker, WorkerDown, WorkerTimeout

T = TypeVar("T")
_GROUP = "evolved.adapters"
_ASKING = 2
"""Times that a task or the tools are asked for, if the worker ends over it: by another one, or by the same anew."""


class WorkerEnvironment:
    """Any environment, in worker processes; Linux only (pidfd, PR_SET_PDEATHSIG).

    `sample`, `profile` and `tools` are answered by a worker while the caller waits, some tenths of a millisecond as a
    rule. Episodes that nobody has used for long are ended when the next one begins, and end by themselves.

    Args:
        target: `module:attribute` of the environment's class or factory, or the name of an installed one (`travel`).
        options: its keyword arguments, JSON-able.
        workers: processes that episodes are forked from; if one is killed, its episodes are lost and the others' not.
        max_instances: episodes open at once.
        step_seconds: for each call of an episode.
        start_seconds: until a worker has built the environment, and until an episode has begun.
        ask_seconds: for a task, the profile or the tools.
        idle_seconds: after which an episode counts as abandoned.
        max_bytes: of one answer.
        backoff: seconds before a worker that ended is started again; doubled each time, to a minute.
        keep: names of environment variables that the environment needs beside PATH, LANG and HOME.

    Raises:
        AdapterNotSetUp: the environment cannot be built, or an option makes no sense.

    What it counts is told where it is shown, in `daemon.composition.environments`.
    """

    def __init__(
        self, target: str, options: Mapping[str, Any] | None = None, *, workers: int = 2, max_instances: int = 256,
        step_seconds: float = 30.0, start_seconds: float = 60.0, ask_seconds: float = 10.0, idle_seconds: float = 900.0,
        max_bytes: int = 4 << 20, backoff: float = 0.5, keep: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        if not hasattr(os, "pidfd_open"):
            raise AdapterNotSetUp("environments in worker processes need Linux; set sandbox.workers = 0")
        spans = (step_seconds, start_seconds, ask_seconds, idle_seconds)
        if workers < 1 or max_instances < 1 or max_bytes < 1024 or backoff < 0:
            raise AdapterNotSetUp("workers and max_instances must be 1 or more, max_bytes 1024, backoff 0")
        if not all(0 < span < math.inf for span in spans):
            raise AdapterNotSetUp("step_seconds, start_seconds, ask_seconds and idle_seconds must be above 0")
        self._step_seconds, self._start_seconds, self._idle_seconds = step_seconds, start_seconds, idle_seconds
        self._max_instances, self._max_bytes, self._clock = max_instances, max_bytes, clock
        self.opened = self.deaths = self.timeouts = self.oversized = self.reaped = self.lost = self.capped = 0
        self.closed = self.refused = 0
        self._episodes: set[EpisodeProcess] = set()
        self._profile: Profile | None = None
        self._done = False
        build = wire.Build(resolved(target), dict(options or {}), max_bytes, idle_seconds)
        self._workers = [
            Worker(
                build, keep=tuple(keep), start_seconds=start_seconds, ask_seconds=ask_seconds, backoff=backoff,
                clock=clock,
            )
            for _ in range(workers)
        ]  # fmt: skip
        try:
            for worker in self._workers:
                worker.start()
            names = [worker.await_ready() for worker in self._workers]
            self.name = names[0]
        except BaseException as error:
            self._stop()
            if isinstance(error, EnvironmentFailed | ValueError | TypeError):
                raise AdapterNotSetUp(f"{target}: {error}") from error
            raise

    @property
    def instances(self) -> int:
        """Episodes that are open."""
        return len(self._episodes)

    @property
    def restarts(self) -> int:
        return sum(worker.starts - 1 for worker in self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers)

    def profile(self) -> Profile:
        if self._profile is None:
            self._profile = self._ask(wire.Describe(), Profile)
        return self._profile

    def tools(self) -> list[dict[str, Any]]:
        return self._ask(wire.ListTools(), list[dict[str, Any]])

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        return self._ask(wire.Sample(seed, split, families), Task)

    async def reset(self, task: Task) -> RemoteEpisode:
        await self._reap()
        self._room()
        worker = self._ready()
        await anyio.to_thread.run_sync(worker.await_ready, abandon_on_cancel=True)
        ours, theirs = socket.socketpair()
        with theirs:
            link = await self._link(ours, worker)
            try:
                worker.open(task, theirs)
            except EnvironmentFailed as error:
                await link.drop("lost", str(error))
                raise
        opening = await link.open()
        self.opened += 1
        worker.proved()
        return remote_episode(link, opening)

    async def aclose(self) -> None:
        self._done = True
        with anyio.CancelScope(shield=True):
            for episode in list(self._episodes):
                await episode.drop("closed", "the environment was closed")
            await anyio.to_thread.run_sync(self._stop)

    def _room(self) -> None:
        if len(self._episodes) >= self._max_instances:
            self.capped += 1
            raise EnvironmentFailed(
                f"{self._max_instances} episodes of {self.name} are open; close some, or raise max_instances"
            )

    async def _link(self, ours: socket.socket, worker: Worker) -> EpisodeProcess:
        stream = await anyio.abc.UNIXSocketStream.from_socket(ours)
        try:
            self._room()  # others may have come meanwhile
        except EnvironmentFailed:
            await anyio.aclose_forcefully(stream)
            raise
        link = EpisodeProcess(
            stream, worker, ended=self._ended, clock=self._clock, seconds=self._step_seconds,
            start_seconds=self._start_seconds, max_bytes=self._max_bytes,
        )  # fmt: skip
        self._episodes.add(link)
        return link

    def _ended(self, link: EpisodeProcess, how: Ending) -> None:
        self._episodes.discard(link)
        setattr(self, how, getattr(self, how) + 1)

    async def _reap(self) -> None:
        """End the episodes that nobody uses, and those whose worker has ended."""
        before = self._clock() - self._idle_seconds
        for episode in list(self._episodes):
            if not episode.worker.alive:
                await episode.drop("lost", "the environment's worker ended")
            elif episode.used < before:
                await episode.drop("reaped", f"the episode was not used for {self._idle_seconds:g} s and was ended")

    def _ready(self) -> Worker:
        """A worker that runs: the one with the fewest episodes, started again if need be."""
        if self._done:
            raise EnvironmentFailed("the environment was closed")
        problem: WorkerDown | None = None
        for worker in self._workers:
            if not worker.alive:
                for episode in [episode for episode in self._episodes if episode.worker is worker]:
                    episode.end("lost", "the environment's worker ended")
                try:
                    worker.start()
                except WorkerDown as error:
                    problem = error
        load = {worker: 0 for worker in self._workers if worker.alive}
        for episode in self._episodes:
            if episode.worker in load:
                load[episode.worker] += 1
        if not load:
            raise problem or WorkerDown("the environment's workers do not start")
        return min(load, key=lambda worker: load[worker])

    def _ask(self, request: wire.Sample | wire.Describe | wire.ListTools, type_: type[T]) -> T:
        for attempt in range(_ASKING):
            try:
                return self._ready().ask(request, type_)
            except WorkerDown as error:
                self.timeouts += isinstance(error, WorkerTimeout)
                if attempt == _ASKING - 1 or isinstance(error, WorkerTimeout):
                    raise
        raise AssertionError("unreachable")

    def _stop(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.stop()


def resolved(target: str) -> str:
    """`target` as `module:attribute`; the name of an installed environment is looked up.

    Raises:
        AdapterNotSetUp: no such environment is installed.
    """
    if ":" in target:
        return target
    for point in entry_points(group=_GROUP):
        if point.name == f"environment.{target}":
            return point.value
    raise AdapterNotSetUp(f"no environment {target!r} is installed; give its class as module:Class")

"""Probing: what has become of the tools, found out by experiments in the sandbox, never on users.

After a drift the policy still does what used to work. The prober lets it play sandbox tasks in episodes that repair its
calls (`edits`): a call of a tool that is gone is made under the name of a new tool that takes the same arguments, a
refused call is made again after a tool that was not used yet. An edit is believed as soon as its call works and counts as
verified once an episode with it has succeeded by the environment's own verification. In the end successful episodes are
replayed without single calls, to see which were needed: so a precondition that the policy keeps out of habit is known
too, and the lesson about a renamed tool can name it.

Every episode is recorded as a trajectory with source "probe", which is never trained on. Nothing here knows the
environment's answer key: only its tools, its observations, and whether a finished episode was a success.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
import msgspec
import structlog

from actors.calls import Call, tool_specs, values
from actors.clusters import cluster_of
from actors.edits import Edit, EditedEpisode, EditLimits
from actors.episodes import EpisodeLost, play
from actors.lessons import producer_of
from actors.messages import Task, Trajectory, derived_id
from adapters.engines import Engine
from adapters.environments import Environment, Episode

_log = structlog.get_logger(__name__)
_SUCCESS = 0.5


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the tool set is probed after a drift."""

    episodes: int = 32
    """Episodes played at most, in one round of probing."""
    width: int = 4
    """Episodes under way at once."""
    calm: int = 2
    """Successful episodes without a new finding, for each kind of goal, after which the round ends early."""
    replays: int = 12
    """Replays at most that ask which calls were needed."""
    families: str = ""
    """Kinds of task, one letter each; empty for the environment's usual mix."""
    first_seed: int = 700_000
    """Number of the first task."""
    limits: EditLimits = EditLimits()
    """Bounds of one episode."""
    max_steps: int = 24
    """Turns of the policy in one episode."""
    max_tokens: int = 512
    """Tokens of one turn."""
    timeout: float = 60.0
    """Seconds for one call of engine or environment."""


class Player(Protocol):
    """Lets the policy play an episode to its end."""

    def __call__(self, episode: Episode, seed: int) -> Awaitable[object]:
        """Play `episode`.

        Raises:
            EpisodeLost: engine or environment broke down.
        """
        ...


def engine_player(engine: Engine, settings: ProbeSettings) -> Player:
    """The policy that `engine` has now, sampled at temperature 1, without lessons."""

    def player(episode: Episode, seed: int) -> Awaitable[object]:
        return play(
            engine,
            episode,
            seed=seed,
            max_steps=settings.max_steps,
            max_tokens=settings.max_tokens,
            timeout=settings.timeout,
        )

    return player


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one tool."""

    tool: str
    """As the policy calls it."""
    name: str
    """As it must be called now."""
    before: str = ""
    """What must be called before, with the same data."""
    producer: str = ""
    """First word of the tool that finds its argument."""
    verified: bool
    """An episode with it succeeded."""
    sources: tuple[str, ...]
    """Probe trajectories that show it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a round of probing came to."""

    findings: tuple[Finding, ...]
    trajectories: tuple[Trajectory, ...]
    tools: tuple[str, ...]
    """Names of the tools as they are now."""
    open: tuple[str, ...]
    """Tools that the policy wanted and that are gone, without anything found in their place."""
    lost: int = 0
    """Episodes that broke down."""


class _Votes(msgspec.Struct):
    """What speaks for an edit."""

    wins: list[str] = msgspec.field(default_factory=list[str])
    """Successful episodes that used it."""
    uses: list[str] = msgspec.field(default_factory=list[str])


class _Success(msgspec.Struct, frozen=True):
    """A successful episode, to be replayed."""

    task: Task
    calls: tuple[Call, ...]
    end: tuple[Any, ...]
    used: frozenset[Edit]


class Prober:
    """Experiments with the tools of a sandbox.

    Args:
        settings: bounds.
        environment: the sandbox.
        player: lets the policy play; `engine_player`.
        clock: unix seconds.
    """

    def __init__(
        self, settings: ProbeSettings, *, environment: Environment, player: Player, clock: Callable[[], float]
    ) -> None:
        self._settings, self._environment, self._player, self._clock = settings, environment, player, clock

    def tools(self) -> tuple[str, ...]:
        """Names of the sandbox's tools as they are now.

        Raises:
            EnvironmentFailed: the sandbox broke down.
        """
        return tuple(tool_specs(self._environment.tools()))

    async def probe(self, known: Sequence[str], label: str) -> Report:
        """One round of probing.

        Args:
            known: names of the tools before the drift.
            label: names the round; part of the trajectories' ids, so that repeating it doubles nothing.

        Raises:
            EpisodeLost: not a single episode could be played.
            EnvironmentFailed: the sandbox broke down.
        """
        round_ = _Round(self._settings, self._environment, self._player, self._clock, frozenset(known), label)
        await round_.play()
        await round_.ask_what_was_needed()
        report = round_.report()
        _log.info(
            "probing_done",
            label=label,
            episodes=len(report.trajectories),
            lost=report.lost,
            findings=[f"{found.tool}>{found.before}>{found.name}" for found in report.findings],
            open=list(report.open),
        )
        return report

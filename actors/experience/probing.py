"""Probing: what has become of the tools, found out by experiments in the sandbox, never on users.

After a drift the policy still does what used to work. The prober lets it play sandbox tasks in episodes that repair its
calls (`edits`): a call of a tool that is gone is made under the name of a new tool that takes the same arguments, a
refused call is made again after a tool that was not used yet. An edit is believed as soon as its call works, and counts
as verified once an episode with it has succeeded by the environment's own verification. In the end successful episodes
are replayed without single calls, to see which were needed: so a precondition that the policy keeps out of habit is
known too, and the lesson about a renamed tool can name it.

Every episode is recorded as a trajectory with source "probe", which is never trained on. Nothing here knows the
environment's answer key: only its tools, its observations, and whether a finished episode was a success.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from actors.experience.probing_round import Player, ProbeFinding, ProbeReport, Round
from actors.ports.engines import Engine
from actors.ports.environments import Environment, Episode
from actors.rollout.episode_runner import play
from actors.tool_results.tool_calls import tool_specs

__all__ = ["Player", "ProbeFinding", "ProbeReport", "Prober", "engine_player"]

_log = structlog.get_logger(__name__)
_TIMEOUT = 60.0
"""Seconds for one call of engine or environment."""


def engine_player(engine: Engine, max_steps: int, max_tokens: int) -> Player:
    """The policy that `engine` has now, sampled at temperature 1, without lessons."""

    def player(episode: Episode, seed: int) -> Awaitable[object]:
        return play(engine, episode, seed=seed, max_steps=max_steps, max_tokens=max_tokens, timeout=_TIMEOUT)

    return player


class Prober:
    """Experiments with the tools of a sandbox."""

    def __init__(
        self, *, environment: Environment, player: Player, clock: Callable[[], float], families: str | None = None
    ) -> None:
        """`families` are kinds of task, one letter each; None for the environment's usual mix."""
        self._environment, self._families, self._player, self._clock = environment, families, player, clock

    def tools(self) -> tuple[str, ...]:
        """Names of the sandbox's tools as they are now.

        Raises:
            EnvironmentFailed: the sandbox broke down.
        """
        return tuple(tool_specs(self._environment.tools()))

    async def probe(
        self, known: Sequence[str], label: str, former: Sequence[str] = (), asks: Callable[[str], str] = lambda goal: ""
    ) -> ProbeReport:
        """One round of probing.

        Args:
            known: names of the tools before the drift.
            label: names the round; part of the trajectories' ids, so that repeating a round doubles nothing.
            former: names of tools that were there before that, which the policy may still have in mind.
            asks: the tool, of those that are gone, that a goal asks for; empty for none.

        Raises:
            EpisodeLost: not a single episode could be played.
            EnvironmentFailed: the sandbox broke down.
        """
        names = frozenset(known), frozenset(former)
        round_ = Round(self._environment, self._families, self._player, self._clock, *names, label, asks)
        await round_.play()
        await round_.ask_what_was_needed()
        report = round_.report()
        _log.info(
            "probing_done",
            label=label,
            trajectories=len(report.trajectories),
            lost=report.lost,
            findings=[f"{found.tool}: {found.before} {found.name}".replace("  ", " ") for found in report.findings],
            open=list(report.open),
        )
        return report

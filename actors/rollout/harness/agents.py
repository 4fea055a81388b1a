"""A user's own agent loop in place of ours: any class with `async run(session)`, named by class path.

Whatever it does within its deadline is recorded by the session; whatever it breaks is the loss of that episode.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
import msgspec

from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.session import Session


class AgentLoop(Protocol):
    """Plays one episode; made anew for each."""

    async def run(self, session: Session) -> None:
        """Ask the model with `session.chat`, act with `session.step`, and return when there is nothing more to do.

        `EpisodeOver` out of either says that there is nothing more; it may be let through. Any other error loses the
        episode.
        """
        ...


class Agent(msgspec.Struct, frozen=True):
    """How a user's loop is run."""

    make: Callable[[], AgentLoop]
    seconds: float = 600.0
    """For a whole episode."""


async def run_agent(agent: Agent, session: Session) -> None:
    """Let `agent` play.

    Raises:
        EpisodeLost: `agent_failed` for an error of its own, its deadline, or an episode without a single turn; else
            what broke down under it.
    """
    try:
        with anyio.move_on_after(agent.seconds) as scope:
            await agent.make().run(session)
        if scope.cancelled_caught:
            raise EpisodeLost("agent_failed", f"no end after {agent.seconds:g} s")
    except (Exception, SystemExit) as error:  # whatever it is, it costs this episode and no more
        if session.broken is None and session.ending is None:
            if not session.turns or not session.refused:
                raise error if isinstance(error, EpisodeLost) else EpisodeLost("agent_failed", error) from error
            # A loop that does not know what to do about a full context ends by it, as ours does.
            session.end("context")
    if session.broken is not None:
        raise session.broken
    if not session.turns:
        raise EpisodeLost("agent_failed", session.refused or "it asked the model for nothing")
    session.end("left")

"""How an episode can end without a result, and how a loop is told that it is over.

EpisodeLost         the episode broke down for reasons that say nothing about the policy; it counts for nothing
├── RequestRefused  the engine would not have this request as such: usually the context is full
└── BudgetExceeded  a prompt was longer than it was counted to be
EpisodeOver         the episode has come to its end or to a limit: no further turn, time to evaluate
SamplingRefused     a request asks for sampling that could not be trained on, or for what nobody can do here
"""

from typing import Literal

Ending = Literal["finished", "steps", "context", "budget", "left"]
"""Why an episode took no further turn: the environment ended it, the limit of steps, the engine's context, the token
budget of the context template, or the agent's loop returned before."""


class EpisodeLost(Exception):
    """The episode broke down for reasons that say nothing about the policy; it counts for nothing.

    Attributes:
        reason: a stable short word to count by.
    """

    def __init__(self, reason: str, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        super().__init__(f"{reason}: {text}")
        self.reason = reason


class RequestRefused(EpisodeLost):
    """The engine rejected the request as such: usually the context is full."""


class BudgetExceeded(EpisodeLost):
    """The engine's prompt had more tokens than were counted: the counting must be wrong, so nothing of it is used."""


class EpisodeOver(Exception):
    """No further turn.

    Attributes:
        ending: why.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(f"the episode is over: {ending}")
        self.ending: Ending = ending


class SamplingRefused(ValueError):
    """The request asks for what is not done here; the text names the parameter and the remedy."""

"""Which trajectories make one question: those whose goals mean about the same, as far as there are enough of them.

    a neighbourhood of goals, `fresh` of them new  ->  an agent, twice as many  ->  a tenant, four times as many

What is less alike is asked about only when there is more of it, and then no more than `fresh` trajectories at a time:
the oldest that is new, and those with the goals nearest to its own. So every goal in free words is part of a question
sooner or later, and no question is about more than it can be told. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from math import log, sqrt

from actors.kinds.agents import by_agent
from actors.kinds.neighbourhoods import Features, features
from actors.messages import Trajectory


def gathered(
    runs: Sequence[Trajectory], asked: Collection[str], fresh: int, kind: Callable[[Trajectory], str]
) -> list[Trajectory]:
    """The trajectories that are to be asked about now; empty if there is too little news.

    Args:
        runs: of one tenant and party, oldest first.
        asked: ids of those that were asked about.
        kind: neighbourhood of a trajectory's goal.
    """
    agents = by_agent(runs)
    alike: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    for number, group in enumerate(agents):
        for run in group:
            alike[number, kind(run)].append(run)
    most = max(alike.values(), key=lambda group: _news(group, asked), default=[])
    if _news(most, asked) >= fresh:
        return most[::-1]
    for wider, enough in ((agents, 2 * fresh), ([list(runs)], 4 * fresh)):
        most = max(wider, key=lambda group: _news(group, asked), default=[])
        if _news(most, asked) >= enough:
            return _nearest([run for run in most if run.id not in asked], fresh)
    return []


def _news(runs: Sequence[Trajectory], asked: Collection[str]) -> int:
    return sum(run.id not in asked for run in runs)


def _nearest(runs: Sequence[Trajectory], number: int) -> list[Trajectory]:
    """The first of `runs`, and those with the goals nearest to its own: words that many goals have weigh little."""
    goals = {run.id: features(run.goal) for run in runs}
    having = Counter(word for goal in goals.values() for word in goal)
    weighed = {
        key: {word: weight * log(1.0 + len(runs) / having[word]) for word, weight in goal.items()}
        for key, goal in goals.items()
    }
    own = weighed[runs[0].id]
    return sorted(runs, key=lambda run: (run.id != runs[0].id, -_alike(own, weighed[run.id])))[:number]


def _alike(one: Features, other: Features) -> float:
    """Cosine of two goals."""
    shared = sum(weight * other[word] for word, weight in one.items() if word in other)
    sizes = [sqrt(sum(weight * weight for weight in goal.values())) for goal in (one, other)]
    return shared / (sizes[0] * sizes[1]) if shared else 0.0

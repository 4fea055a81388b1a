"""Which tool does a goal ask for? Told by the goals of runs that called it, beside those of runs that did not.

A drift of tools is looked into with few episodes, and in free words most goals have nothing to do with what drifted.
Bernoulli naive Bayes over the words of goals (Manning, Raghavan and Schuetze, Introduction to Information Retrieval,
13.3), one tool at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log

from actors.experience.intents import words_of

_ENOUGH = 3
"""Goals that must have asked for a tool: the words of two are chance."""
_LONG = 1000
"""Characters of a goal that are read."""


def asker(goals: Mapping[str, Sequence[str]], others: Sequence[str]) -> Callable[[str], str]:
    """The tool that a goal asks for, or the empty string.

    Args:
        goals: by tool, of runs that called it.
        others: goals of runs that called none of them.
    """
    elsewhere = _counted(others)
    told = {tool: (_counted(said), len(said)) for tool, said in goals.items() if len(said) >= _ENOUGH}
    everywhere = sum((words for words, _ in told.values()), elsewhere)
    total = len(others) + sum(number for _, number in told.values())

    def score(words: Iterable[str], tool: str) -> float:
        having, number = told[tool]
        rest = total - number
        return sum(
            log((having[word] + 0.5) / (number + 1)) - log((everywhere[word] - having[word] + 0.5) / (rest + 1))
            for word in words
        )

    def asks(goal: str) -> str:
        words = {word for word in words_of(goal[:_LONG]) if word in everywhere}
        scores = {tool: score(words, tool) for tool in told}
        best = max(scores, key=lambda tool: (scores[tool], tool), default="")
        return best if best and scores[best] > 0 else ""

    return asks


def _counted(goals: Iterable[str]) -> Counter[str]:
    return Counter(word for goal in goals for word in set(words_of(goal[:_LONG])))

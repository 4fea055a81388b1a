"""Which words a lesson is filed under: those that the goals of its runs share, and that nobody's data hides in."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean

from actors.kinds.clusters import template_of
from actors.messages import Trajectory

_WORD = re.compile(r"[^\W\d_]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_A-Za-z]+")
_ADDRESS = re.compile(r"\S+@\S+|\w+://\S+")
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Scripts that put no blanks between words: pairs of letters stand for words there."""
_SHORT = 3
"""Letters up to which a word of a spaced script says little."""
_SHARE = 0.2
"""Of the goals, that must have a word: what few have may be a name."""
_ORIGINS = 3
"""That must have said it."""
_MOST = 5


def intent_of(
    runs: Sequence[Trajectory], others: Sequence[Trajectory], tool: str, origin: Callable[[Trajectory], str]
) -> str:
    """Words that the goals of `runs` share, those first that those of `others` lack, in the order of the goals; of the
    name of `tool`, if there are none.

    Args:
        origin: of a trajectory: words of one are repeated by nobody.
    """
    said = [(run, words_of(run.goal)) for run in runs]
    having: Counter[str] = Counter(word for _, words in said for word in set(words))
    elsewhere: Counter[str] = Counter(word for run in others for word in set(words_of(run.goal)))
    enough = _SHARE * len(runs)
    shared = [word for word, number in having.items() if number >= enough]
    shared = [word for word in shared if len({origin(run) for run, words in said if word in words}) >= _ORIGINS]
    telling = sorted(
        shared, key=lambda word: (-having[word] / len(runs) * (1 - elsewhere[word] / (len(others) + 1)), word)
    )
    place = {word: mean(words.index(word) for _, words in said if word in words) for word in telling[:_MOST]}
    words = sorted(place, key=lambda word: (place[word], word)) or [part.lower() for part in _PART.findall(tool)]
    return " ".join(words) or tool


def words_of(goal: str) -> list[str]:
    """Words of a goal that may say what it asks for: no data, nothing short; pairs of letters where no blanks are."""
    words: list[str] = []
    for word in _WORD.findall(template_of(_ADDRESS.sub("*", goal))):
        if _UNSPACED.search(word):
            words += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        elif len(word) > _SHORT:
            words.append(word)
    return words

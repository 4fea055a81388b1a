"""Goals in free words that mean about the same: neighbourhoods, by the words that goals share.

    goal  ->  template (names and numbers masked)  ->  words, pairs of words  ->  nearest leader, or a leader of its own

Leader clustering (Hartigan 1975, chapter 3), words weighed by inverse document frequency over the leaders. A
neighbourhood has the name of its first goal's cluster.
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import log, sqrt
from zlib import crc32

import msgspec

from actors.kinds.clusters import cluster_of, template_of
from actors.kinds.remembered import Remembered

NEAR = 0.3
"""Cosine from which on a goal follows a leader. Two requests of ten words that share three rare ones are near it."""
_FEATURES = 64
"""Words and pairs that a leader is known by: those that most of its goals have."""
_LONGEST = 200
"""Distinct words and pairs of a goal that are looked at."""
_REACH = 256
"""Goals that a leader's words reach back: language changes too."""
_SHORT = 3
"""Letters up to which a word says little in most languages."""
_LITTLE = 0.25
_PAIR = 0.5
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Scripts that put no blanks between words: pairs of letters stand for words there."""

Features = dict[int, float]


class Leader(msgspec.Struct):
    """A neighbourhood, by the words of the goals that followed."""

    name: str
    words: dict[int, float]
    """By digest of word or pair: discounted number of its goals that have it, times what such a feature weighs."""


def features(goal: str) -> Features:
    """Words and pairs of `goal` by digest, with what each weighs before it is known how rare it is."""
    words: list[str] = []
    for word in _WORD.findall(template_of(goal)):
        words += [word[i : i + 2] for i in range(len(word) - 1)] if _UNSPACED.search(word) else [word]
    found: Features = {}
    for place, word in enumerate(words):
        if len(found) >= _LONGEST:
            break
        # A plural and its singular begin alike.
        stem = word[:5] if word.isascii() else word
        little = word.isascii() and len(word) <= _SHORT
        found[crc32(stem.encode("utf-8", "replace"))] = _LITTLE if little else 1.0
        if place:
            found[crc32(f"{words[place - 1]} {word}".encode("utf-8", "replace"))] = _PAIR
    return found


class Neighbourhoods:
    """At most `limit`."""

    def __init__(self, limit: int, leaders: Iterable[tuple[str, Leader]] = ()) -> None:
        self._leaders = Remembered[Leader](limit, ((one.name, party, one) for party, one in leaders))
        self._having: Counter[int] | None = None
        """By word: leaders that have it; counted anew when it is asked for after a change."""
        self._sizes: dict[str, float] = {}
        """Lengths of leaders, by name, until one of them changes: a word's weight depends on all."""

    def near(self, goal: str) -> str:
        """The neighbourhood of `goal`, its own cluster if there is none; nothing is learned by asking."""
        own = cluster_of(goal)
        return own if own in self._leaders else self._nearest(features(goal)) or own

    def place(self, goal: str, party: str) -> str:
        """The neighbourhood of `goal`, which may be a new one; its words are learned.

        Args:
            party: whose goal it is: who sends a flood of odd goals pushes out no neighbourhood of others.
        """
        name, own = self.near(goal), features(goal)
        leader = self._leaders.get(name)
        if leader is None:
            self._leaders.put(name, party, Leader(name, dict(list(own.items())[:_FEATURES])))
        else:
            _follow(leader, own)
        self._having = None
        self._sizes.clear()
        return name

    def _nearest(self, own: Features) -> str | None:
        if not own or not len(self._leaders):
            return None
        rare = {word: self._rare(word) for word in own}
        worth = {word: weight * rare[word] ** 2 for word, weight in own.items()}
        size = sqrt(sum((weight * rare[word]) ** 2 for word, weight in own.items()))
        best, most = None, NEAR
        for name, _, leader in self._leaders:
            if worth.keys().isdisjoint(leader.words):
                continue
            shared = sum(much * leader.words[word] for word, much in worth.items() if word in leader.words)
            alike = shared / (size * self._size(leader))
            if alike > most or (alike == most and best is not None and name < best):
                best, most = name, alike
        return best

    def _size(self, leader: Leader) -> float:
        size = self._sizes.get(leader.name)
        if size is None:
            weights = (weight * self._rare(word) for word, weight in leader.words.items())
            size = self._sizes[leader.name] = sqrt(sum(weight**2 for weight in weights))
        return size

    def _rare(self, word: int) -> float:
        """From about 0.7, every leader has it, upwards."""
        if self._having is None:
            self._having = Counter(chain.from_iterable(leader.words for _, _, leader in self._leaders))
        return log(1.0 + len(self._leaders) / max(1, self._having[word]))

    def state(self) -> list[tuple[str, Leader]]:
        """Everything, as (party, leader), the one longest without use first."""
        return [(owner, leader) for _, owner, leader in self._leaders]


def _follow(leader: Leader, own: Features) -> None:
    words = {word: weight * (1.0 - 1.0 / _REACH) for word, weight in leader.words.items()}
    for word, weight in own.items():
        words[word] = words.get(word, 0.0) + weight
    # Of equal weight the older stays: the same goals in the same order give the same leader.
    leader.words = dict(sorted(words.items(), key=lambda item: -item[1])[:_FEATURES])

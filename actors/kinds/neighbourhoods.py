"""Goals in free words that mean about the same: neighbourhoods, found by their words, without a model or a server.

    goal  ->  template (names and numbers masked)  ->  words, pairs of words  ->  nearest leader, or a leader of its own

Leader clustering (Hartigan 1975, "Clustering Algorithms", chapter 3): one look at each goal, in the order of arrival,
and the same order gives the same neighbourhoods. A leader is known by the words of the goals that followed it; words
that many of an agent's leaders have weigh little (inverse document frequency, Spärck Jones 1972, with leaders for
documents). A neighbourhood has the name of the cluster of its first goal, so where goals come from templates
neighbourhoods and clusters agree.

Words are a floor: "refund my purchase" and "I want my money back" share none and are two neighbourhoods. What is not
found near is not lost by that, for estimates shrink towards the agent's (`actors.kinds.estimates`).
"""

import re
from collections import Counter
from math import log, sqrt
from zlib import crc32

import msgspec

from actors.kinds.clusters import cluster_of, template_of
from actors.kinds.remembered import Remembered

NEAR = 0.3
"""Cosine from which on a goal follows a leader. Two requests of ten words that share three rare ones are near it."""
LEADERS = 64
"""Neighbourhoods of one agent."""
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
    goals: float
    """Discounted number."""
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
    """Those of one agent."""

    def __init__(self) -> None:
        self._leaders: Remembered[Leader] = Remembered(LEADERS)
        self._rarity: Counter[int] = Counter()
        """Leaders that have a word."""

    def __len__(self) -> int:
        return len(self._leaders)

    @property
    def forgotten(self) -> int:
        """Neighbourhoods that made room for others."""
        return self._leaders.forgotten

    def near(self, goal: str) -> str | None:
        """The neighbourhood of `goal`, None if there is none; nothing is learned by asking."""
        own = cluster_of(goal)
        return own if own in self._leaders else self._nearest(features(goal))

    def place(self, goal: str, party: str) -> str:
        """The neighbourhood of `goal`, which may be a new one; its words are learned.

        Args:
            party: whose goal it is: who floods an agent with odd goals pushes out no neighbourhood of others.
        """
        name, own = cluster_of(goal), features(goal)
        if name not in self._leaders:
            name = self._nearest(own) or name
        leader = self._leaders.get(name)
        if leader is None:
            leader = Leader(name, 1.0, dict(list(own.items())[:_FEATURES]))
            self._rarity.update(leader.words.keys())
            for gone in self._leaders.put(name, party, leader):
                self._rarity.subtract(gone.words.keys())
        else:
            self._follow(leader, own)
        self._rarity = +self._rarity if len(self._rarity) > 2 * LEADERS * _FEATURES else self._rarity
        return name

    def _follow(self, leader: Leader, own: Features) -> None:
        before = set(leader.words)
        kept = 1.0 - 1.0 / _REACH
        leader.goals = leader.goals * kept + 1.0
        words = {word: weight * kept for word, weight in leader.words.items()}
        for word, weight in own.items():
            words[word] = words.get(word, 0.0) + weight
        # Of equal weight the older stays: the same goals in the same order give the same leader.
        leader.words = dict(sorted(words.items(), key=lambda item: -item[1])[:_FEATURES])
        self._rarity.update(leader.words.keys() - before)
        self._rarity.subtract(before - leader.words.keys())

    def _nearest(self, own: Features) -> str | None:
        if not own or not len(self._leaders):
            return None
        number = len(self._leaders)
        rare = {word: self._rare(word, number) for word in own}
        size = sqrt(sum((weight * rare[word]) ** 2 for word, weight in own.items()))
        best, most = None, NEAR
        for name, _, leader in self._leaders:
            words = leader.words
            shared = sum(own[word] * rare[word] ** 2 * words[word] for word in own.keys() & words.keys())
            if shared <= 0.0:
                continue
            theirs = sqrt(sum((weight * self._rare(word, number)) ** 2 for word, weight in words.items()))
            alike = shared / (size * theirs)
            if alike > most or (alike == most and best is not None and name < best):
                best, most = name, alike
        return best

    def _rare(self, word: int, leaders: int) -> float:
        """From about 0.7, every leader has it, upwards."""
        return log(1.0 + leaders / max(1, self._rarity[word]))

    def state(self) -> list[tuple[str, Leader]]:
        """Everything, as (party, leader), the one longest without use first."""
        return [(owner, leader) for _, owner, leader in self._leaders]

    def load(self, state: list[tuple[str, Leader]]) -> None:
        """Take up what `state` gave."""
        for party, leader in state:
            self._leaders.put(leader.name, party, leader)
            self._rarity.update(leader.words.keys())

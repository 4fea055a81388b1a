"""Goals in free words that mean about the same: neighbourhoods, by vectors where there are any, else by words.

    goal  ->  template (names and numbers masked)  ->  words, pairs of words  ->  nearest leader, or a leader of its own
    goal  ->  vector, where an embedding server is named  ->  a leader that stands out from the others   (asked first)

Leader clustering (Hartigan 1975, chapter 3), words weighed by inverse document frequency over an agent's leaders. A
neighbourhood has the name of its first goal's cluster. A goal follows by its vector if the nearest leader stands out
from its likeness to all others (an empirical null, Efron 2004): no one cosine fits two models.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from math import log, sqrt
from zlib import crc32

import msgspec
import numpy as np

from actors.kinds.clusters import cluster_of, template_of
from actors.kinds.meanings import Meaning
from actors.kinds.remembered import Remembered

NEAR = 0.3
"""Cosine from which on a goal follows a leader. Two requests of ten words that share three rare ones are near it."""
LEADERS = 64
"""Neighbourhoods of one agent."""
FEW = 16
"""Leaders with vectors from which on they tell what is usual; words alone before."""
FAR = 7.0
"""Spreads above its median likeness at which a goal's nearest leader stands out (docs/how-it-learns.md)."""
_LOWER = 0.1587
"""Share of a normal distribution that is more than one spread below its median. The upper half has what is alike."""
_LEAST = 0.01
"""Spread at least: of a model to which all goals are the same nothing stands out by rounding."""
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
    space: str = ""
    """Of `meaning`: whose vectors it is made of."""
    meaning: bytes = b""
    """Discounted sum of its goals' vectors, float32 `(d,)`; empty if none had one."""
    alike: list[str] = []
    """Clusters that followed by meaning: they are found again while no server answers, and after a restart."""


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

    def __init__(self, limit: int = LEADERS, far: float = FAR) -> None:
        self._far = far
        self._leaders: Remembered[Leader] = Remembered(limit)
        self._having: dict[int, dict[str, Leader]] = {}
        """By word: the leaders that have it, so that a goal is compared with those alone that share one with it."""
        self._sizes: dict[str, float] = {}
        """Lengths of leaders, by name, until one of them changes: a word's weight depends on all."""
        self._alike: dict[str, str] = {}
        """By cluster: the leader that it followed by meaning."""

    def __len__(self) -> int:
        return len(self._leaders)

    @property
    def forgotten(self) -> int:
        """Neighbourhoods that made room for others."""
        return self._leaders.forgotten

    def near(self, goal: str, meaning: Meaning | None = None) -> str | None:
        """The neighbourhood of `goal`, None if there is none; nothing is learned by asking."""
        own = cluster_of(goal)
        return self._known(own) or self._standing_out(meaning) or self._nearest(features(goal))

    def place(self, goal: str, party: str, meaning: Meaning | None = None) -> str:
        """The neighbourhood of `goal`, which may be a new one; its words, and its vector, are learned.

        Args:
            party: whose goal it is: who floods an agent with odd goals pushes out no neighbourhood of others.
        """
        cluster, own = cluster_of(goal), features(goal)
        known = self._known(cluster)
        found = known or self._standing_out(meaning)
        name = found or self._nearest(own) or cluster
        leader = self._leaders.get(name)
        if leader is None:
            leader = Leader(name, 1.0, dict(list(own.items())[:_FEATURES]))
            _mean(leader, meaning)
            self._found(party, leader)
        else:
            self._follow(leader, own)
            _mean(leader, meaning)
            if known is None and found is not None:
                self._remember(leader, cluster)
        self._sizes.clear()
        return name

    def _known(self, cluster: str) -> str | None:
        """The neighbourhood that has had goals of `cluster`, as its first or by meaning."""
        return cluster if cluster in self._leaders else self._alike.get(cluster)

    def _remember(self, leader: Leader, cluster: str) -> None:
        leader.alike.append(cluster)
        self._alike[cluster] = leader.name
        for gone in leader.alike[:-_FEATURES]:
            del self._alike[gone]
        del leader.alike[:-_FEATURES]

    def _standing_out(self, meaning: Meaning | None) -> str | None:
        """The leader nearest to `meaning`, if it is nearer than what is usual among the others explains."""
        if meaning is None:
            return None
        those = [leader for _, _, leader in self._leaders if leader.space == meaning.space]
        if len(those) < FEW:
            return None
        # (leaders, d), and the cosine of each with the goal.
        rows = np.frombuffer(b"".join(leader.meaning for leader in those), dtype=np.float32).reshape(len(those), -1)
        alike = rows @ meaning.vector / np.linalg.norm(rows, axis=1)
        lower, usual = np.quantile(alike, (_LOWER, 0.5))
        best = int(alike.argmax())
        return those[best].name if alike[best] - usual >= self._far * max(usual - lower, _LEAST) else None

    def _found(self, party: str, leader: Leader) -> None:
        self._has(leader, leader.words)
        for gone in self._leaders.put(leader.name, party, leader):
            self._has_not(gone, gone.words)
            for cluster in gone.alike:
                del self._alike[cluster]
        for cluster in leader.alike:
            self._alike[cluster] = leader.name

    def _has(self, leader: Leader, words: Iterable[int]) -> None:
        for word in words:
            self._having.setdefault(word, {})[leader.name] = leader

    def _has_not(self, leader: Leader, words: Iterable[int]) -> None:
        for word in words:
            having = self._having[word]
            del having[leader.name]
            if not having:
                del self._having[word]

    def _follow(self, leader: Leader, own: Features) -> None:
        before = set(leader.words)
        kept = 1.0 - 1.0 / _REACH
        leader.goals = leader.goals * kept + 1.0
        words = {word: weight * kept for word, weight in leader.words.items()}
        for word, weight in own.items():
            words[word] = words.get(word, 0.0) + weight
        # Of equal weight the older stays: the same goals in the same order give the same leader.
        leader.words = dict(sorted(words.items(), key=lambda item: -item[1])[:_FEATURES])
        self._has(leader, leader.words.keys() - before)
        self._has_not(leader, before - leader.words.keys())

    def _nearest(self, own: Features) -> str | None:
        if not own or not len(self._leaders):
            return None
        rare = {word: self._rare(word) for word in own}
        size = sqrt(sum((weight * rare[word]) ** 2 for word, weight in own.items()))
        shared: defaultdict[str, float] = defaultdict(float)
        found: dict[str, Leader] = {}
        for word, weight in own.items():
            having, worth = self._having.get(word, {}), weight * rare[word] ** 2
            found.update(having)
            for name, leader in having.items():
                shared[name] += worth * leader.words[word]
        best, most = None, NEAR
        for name, both in shared.items():
            alike = both / (size * self._size(found[name]))
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
        return log(1.0 + len(self._leaders) / max(1, len(self._having.get(word, ()))))

    def state(self) -> list[tuple[str, Leader]]:
        """Everything, as (party, leader), the one longest without use first."""
        return [(owner, leader) for _, owner, leader in self._leaders]

    def load(self, state: list[tuple[str, Leader]]) -> None:
        """Take up what `state` gave."""
        for party, leader in state:
            self._found(party, leader)
        self._sizes.clear()


def _mean(leader: Leader, meaning: Meaning | None) -> None:
    """Add a goal's vector; one of another space begins anew."""
    if meaning is None:
        return
    vector = meaning.vector
    if leader.space == meaning.space:
        vector = np.frombuffer(leader.meaning, dtype=np.float32) * np.float32(1.0 - 1.0 / _REACH) + vector
        if not np.linalg.norm(vector) > _LEAST:
            vector = meaning.vector  # opposites cancel out, and have no direction
    leader.space, leader.meaning = meaning.space, vector.astype(np.float32).tobytes()

"""`Associations`: what people's words mean in operations, learned from which operations served which requests.

"bill" finds no `create_invoice` until somebody's bill was settled with one. From requests and the operations that they
ended in, words that go together are counted; a later request is asked with the operations' words beside its own. The
weight of a pair is by how much a word of the request makes the operation's word likelier than it is anyway.
"""

from collections import Counter
from collections.abc import Collection, Mapping

_MOST_WORDS = 20_000
"""Different words of requests that are remembered; what comes new after that is not learned."""
_LEAST = 2
"""Requests with a word before it says anything."""
_SURE = 0.2
"""Weight below which a pair is chance."""
_BESIDE = 3
"""Operations' words for each word of a request at most."""


class Associations:
    """Pairs of words of requests and of operations."""

    def __init__(self) -> None:
        self._pairs: dict[str, Counter[str]] = {}
        self._asked: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._requests = 0

    def learn(self, asked: Collection[str], used: Collection[str]) -> None:
        """A request with the words `asked` was served by operations with the words `used` in their names."""
        if not used:
            return
        words = set(used)
        self._requests += 1
        self._used.update(words)
        for word in set(asked):
            if word in self._pairs or len(self._pairs) < _MOST_WORDS:
                self._asked[word] += 1
                self._pairs.setdefault(word, Counter()).update(words)

    def expanded(self, query: Mapping[str, float]) -> dict[str, float]:
        """`query` with the operations' words that go with its own, each with its weight."""
        found = dict(query)
        for word, weight in query.items():
            times = self._asked[word]
            if times < _LEAST:
                continue
            told = {
                other: together / (times + 1) - self._used[other] / self._requests
                for other, together in self._pairs[word].items()
                if other != word
            }
            for other in sorted(told, key=lambda each: (-told[each], each))[:_BESIDE]:
                if told[other] >= _SURE:
                    found[other] = found.get(other, 0.0) + weight * told[other]
        return found

"""`LessonIndex`: the lessons of one tenant, found by what they are about.

Each lesson has a slot, which vectors, words and filters share. A lesson without a vector (the embedder was away, or
another model came) is found by its words and by its intent until it has one. Not for several threads at once: whoever
uses a pool in worker threads holds its lock.
"""

import re
from collections.abc import Collection, Iterator, Sequence

import anyio
import msgspec
import numpy as np

from actors.experience.retrieval.ranking import Found, utility
from actors.experience.retrieval.vectors import Mask, Rows, Slots, VectorIndex
from actors.experience.retrieval.words import WordIndex
from actors.messages import Experience

_WORD = re.compile(r"\w+")
_ENDING = 3
"""Letters that a word of the goal may have beyond the intent it names, as `tool_calls.position` has it."""


class Space(msgspec.Struct, frozen=True):
    """Where vectors can be compared: what one model made."""

    embedder: str
    dimension: int


class Query(msgspec.Struct, frozen=True):
    """What lessons are wanted for."""

    texts: tuple[str, ...]
    """The goal; behind it the current step, if there is one."""
    named_by: str = ""
    """Text that names intents: the goal, or nothing."""
    space: Space | None = None
    vectors: Rows | None = None
    """Of `texts`, `(texts, d)`, in `space`; None where the embedder is away."""


class LessonIndex:
    """Lessons by id, in slots."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.vectors: dict[Space, VectorIndex] = {}
        """At most two: while a new model's vectors are made, the old model's stay."""
        self._slots: dict[str, int] = {}
        self._lessons: list[Experience | None] = []
        self._free: list[int] = []
        self._words = WordIndex()
        self._intents: dict[str, set[int]] = {}
        self._states: list[str] = []
        self._kinds: list[str] = []
        self._state = np.zeros(0, dtype=np.uint8)
        """By slot: 1 and up, in the order of `_states`; 0 for an empty slot."""
        self._kind = np.zeros(0, dtype=np.uint8)
        self._worth = np.zeros(0, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, lesson_id: str) -> Experience | None:
        """The lesson `lesson_id`, if it is here."""
        slot = self._slots.get(lesson_id)
        return None if slot is None else self._lessons[slot]

    def lessons(self) -> Iterator[Experience]:
        """All lessons."""
        return (lesson for lesson in self._lessons if lesson is not None)

    def has_vector(self, space: Space, lesson_id: str) -> bool:
        """Whether the lesson `lesson_id` has its vector in `space`."""
        slot = self._slots.get(lesson_id)
        index = self.vectors.get(space)
        return slot is not None and index is not None and index.has(slot)

    def put(self, lesson: Experience) -> None:
        """Take in `lesson`, in place of another revision of it; the vector stays if the text does."""
        slot = self._slots.get(lesson.id)
        known = None if slot is None else self._lessons[slot]
        if slot is None or known is None or text_of(known) != text_of(lesson):
            if known is not None:
                self.remove(lesson.id)
            slot = self._free.pop() if self._free else self._grow()
            self._slots[lesson.id] = slot
            self._words.put(slot, text_of(lesson))
            self._intents.setdefault(lesson.when_to_use.lower(), set()).add(slot)
        self._lessons[slot] = lesson
        self._state[slot] = 1 + _code(self._states, lesson.state)
        self._kind[slot] = 1 + _code(self._kinds, lesson.kind)
        self._worth[slot] = utility(lesson) + (2.0 if lesson.state == "active" else 0.0)

    def remove(self, lesson_id: str) -> None:
        """Take a lesson away; unknown ids are no error."""
        slot = self._slots.pop(lesson_id, None)
        if slot is None:
            return
        lesson = self._lessons[slot]
        assert lesson is not None
        self._words.remove(slot, text_of(lesson))
        intent = self._intents[lesson.when_to_use.lower()]
        intent.discard(slot)
        if not intent:
            del self._intents[lesson.when_to_use.lower()]
        for index in self.vectors.values():
            index.remove(np.array([slot], dtype=np.int64))
        self._lessons[slot] = None
        self._state[slot] = self._kind[slot] = 0
        self._free.append(slot)

    def lay(self, space: Space, vectors: dict[str, Rows]) -> None:
        """Take in vectors, `(d,)`, by lesson id; those of lessons that have left are passed over."""
        here = [(self._slots[key], vector) for key, vector in vectors.items() if key in self._slots]
        if here:
            index = self.vectors.setdefault(space, VectorIndex(space.dimension))
            slots = np.array([slot for slot, _ in here], dtype=np.int64)
            index.put(slots, np.stack([vector for _, vector in here]))

    def find(
        self, query: Query, n: int, *, states: Collection[str] | None = None, kinds: Collection[str] | None = None
    ) -> list[Found]:
        """What may fit `query`: the `n` nearest to each of its vectors, the `n` that cover most of each text's words,
        and `n` at most that it names; in no order. Only lessons in `states` and of `kinds`, where they are given."""
        allowed = self._allowed(states, kinds)
        slots: set[int] = set()
        named = self._named(query.named_by, n, allowed)
        slots |= named
        index = self.vectors.get(query.space) if query.space is not None else None
        if index is not None and query.vectors is not None:
            for vector in query.vectors:
                slots.update(index.search(vector, n, allowed)[1].tolist())
        coverages = [self._words.coverage(text, len(self._lessons)) for text in query.texts]
        for coverage in coverages:
            slots.update(_best(coverage, n, allowed))
        at = np.array(sorted(slots), dtype=np.int64)
        covered = np.max([coverage[at] for coverage in coverages], axis=0) if coverages else np.zeros(len(at))
        near = np.zeros(len(at), dtype=np.float32)
        if index is not None and query.vectors is not None:
            near = np.max([index.products(vector, at) for vector in query.vectors], axis=0)
        return [
            Found(lesson, slot in named, float(likeness), float(cover))
            for slot, likeness, cover in zip(at.tolist(), near, covered, strict=True)
            if (lesson := self._lessons[slot]) is not None
        ]

    def _named(self, text: str, n: int, allowed: Mask) -> set[int]:
        """Slots of `n` lessons at most whose intent `text` speaks of, the most useful ones."""
        slots: set[int] = set()
        for word in set(_WORD.findall(text.lower())):
            for length in range(max(1, len(word) - _ENDING), len(word) + 1):
                slots |= self._intents.get(word[:length], set())
        at = np.fromiter(slots, dtype=np.int64, count=len(slots))
        at = at[allowed[at]]
        if len(at) > n:
            at = at[np.argsort(-self._worth[at], kind="stable")[:n]]
        return set(at.tolist())

    def _allowed(self, states: Collection[str] | None, kinds: Collection[str] | None) -> Mask:
        count = len(self._lessons)
        allowed = _among(self._state[:count], self._states, states)
        return allowed if kinds is None else allowed & _among(self._kind[:count], self._kinds, kinds)

    def _grow(self) -> int:
        slot = len(self._lessons)
        self._lessons.append(None)
        if slot >= len(self._state):
            room = max(64, 2 * slot)
            self._state, self._kind = _longer(self._state, room), _longer(self._kind, room)
            self._worth = _longer(self._worth, room)
        return slot


def text_of(lesson: Experience) -> str:
    """What is embedded and indexed."""
    return f"{lesson.when_to_use} {lesson.content}"


def _code(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)


def _among(codes: np.ndarray, names: Sequence[str], wanted: Collection[str] | None) -> Mask:
    """Which of `codes` stand for a name in `wanted`; for any name, if that is None."""
    table = np.array([False] + [wanted is None or name in wanted for name in names])
    return table[codes]


def _best(scores: Rows, n: int, allowed: Mask) -> list[int]:
    """The slots of the `n` highest scores above 0."""
    slots: Slots = np.flatnonzero((scores > 0) & allowed)
    if len(slots) > n:
        slots = slots[np.argpartition(-scores[slots], n - 1)[:n]]
    return slots.tolist()


def _longer(array: np.ndarray, room: int) -> np.ndarray:
    grown = np.zeros(room, dtype=array.dtype)
    grown[: len(array)] = array
    return grown

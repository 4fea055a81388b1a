"""`LessonIndex`: the lessons of one tenant, found by what they are about.

Each lesson has a slot, which vectors, words and filters share. A lesson without a vector (the embedder was away, or
another model came) is found by its words and by its intent until it has one."""

import re
from collections.abc import Collection, Iterator, Sequence

import msgspec
import numpy as np

from actors.experience.lessons import read_practice
from actors.experience.retrieval.ranking import Found, utility
from actors.experience.retrieval.vectors import Mask, Rows, Slots, VectorIndex
from actors.messages import Experience
from actors.ports.search.texts import TextIndex

_WORD = re.compile(r"\w+")
_ENDING = 3
"""Letters that a word of the goal may have beyond the intent it names, as `tool_calls.position` has it."""
_BROADER = 4.0
"""A lesson that says in many ways how people ask covers more of any goal, also of those that it is not for: its share
counts 1 / sqrt(1 + ways / this), so that one floor fits all (chosen on banking77 with 0, 3 and 8 ways)."""


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
    tools: tuple[str, ...] = ()
    """That the agent has: a lesson that says what one of them is called now is for whoever has it."""
    space: Space | None = None
    vectors: Rows | None = None
    """Of `texts`, `(texts, d)`, in `space`; None where the embedder is away."""


class LessonIndex:
    """Lessons by id, in slots."""

    def __init__(self) -> None:
        self.vectors: dict[Space, VectorIndex] = {}
        self._slots: dict[str, int] = {}
        self._lessons: list[Experience | None] = []
        self._free: list[int] = []
        self._words = TextIndex()
        self._intents: dict[str, set[int]] = {}
        self._renames: dict[str, set[int]] = {}
        """By tool, the lessons that say it is a name that is new."""
        self._states: list[str] = []
        self._kinds: list[str] = []
        self._state = np.zeros(0, dtype=np.uint8)
        """By slot: 1 and up, in the order of `_states`; 0 for an empty slot."""
        self._kind = np.zeros(0, dtype=np.uint8)
        self._worth = np.zeros(0, dtype=np.float32)
        self._breadth = np.zeros(0, dtype=np.float32)
        """By slot, what a share of words counts: see `_BROADER`."""

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
        if slot is None or known is None or words_of(known) != words_of(lesson):
            if known is not None:
                self.remove(lesson.id)
            slot = self._free.pop() if self._free else self._grow()
            self._slots[lesson.id] = slot
            self._words.put(slot, ((1.0, words_of(lesson)),))
            self._breadth[slot] = (1 + len(lesson.asked) / _BROADER) ** -0.5
            self._intents.setdefault(lesson.when_to_use.lower(), set()).add(slot)
        elif _new_names(known) != _new_names(lesson):
            _take(self._renames, _new_names(known), slot)
        for tool in _new_names(lesson):
            self._renames.setdefault(tool, set()).add(slot)
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
        self._words.remove(slot, ((1.0, words_of(lesson)),))
        _take(self._intents, {lesson.when_to_use.lower()}, slot)
        _take(self._renames, _new_names(lesson), slot)
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
        named = self._named(query, n, allowed)
        slots |= named
        index = self.vectors.get(query.space) if query.space is not None else None
        if index is not None and query.vectors is not None:
            for vector in query.vectors:
                slots.update(index.search(vector, n, allowed)[1].tolist())
        count = len(self._lessons)
        coverages = [self._words.coverage(text, count) * self._breadth[:count] for text in query.texts]
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

    def _named(self, query: Query, n: int, allowed: Mask) -> set[int]:
        """Slots of `n` lessons at most whose intent is spoken of, or whose new names the agent has, the most useful."""
        slots: set[int] = set()
        for tool in query.tools:
            slots |= self._renames.get(tool, set())
        for word in set(_WORD.findall(query.named_by.lower())):
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
            self._worth, self._breadth = _longer(self._worth, room), _longer(self._breadth, room)
        return slot


def _new_names(lesson: Experience) -> frozenset[str]:
    """Tools that `lesson` says are called so now, where no word is known by which goals ask for them: told to everybody
    who has one, it disturbs attempts at something else (the travel desk: 23 % with it, 38 % without)."""
    practice = read_practice(lesson) if lesson.kind == "rename" else None
    return frozenset({practice.tool}) if practice is not None and practice.what else frozenset()


def _take(index: dict[str, set[int]], keys: Collection[str], slot: int) -> None:
    for key in keys:
        index[key].discard(slot)
        if not index[key]:
            del index[key]


def text_of(lesson: Experience) -> str:
    """What is embedded."""
    return f"{lesson.when_to_use} {lesson.content}"


def words_of(lesson: Experience) -> str:
    """What is found by words: what it says, and how people asked for what it is about."""
    return " ".join((lesson.when_to_use, lesson.content, *lesson.asked))


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

"""What a detector is: a kind, a cheap look whether it can have anything to find, and the search itself. `form` and
`labelled` make one of a pattern."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

Spans = Iterator[tuple[int, int]]
"""Start and end of what is to be taken out."""

_RUNS = bytes(0x61 if (chr(code).isalnum() and code < 128) or code in b"-_." else 0x20 for code in range(256))
_DIGITS = bytes(0x30 if 0x30 <= code <= 0x39 else 0x20 for code in range(256))
_BETWEEN_DIGITS = b" -.()/\xc2\xa0"
"""What people write between the digits of one number; the last two are the no-break space."""
_REACH = 72
"""Characters from where a name begins, within which the number that it names must begin."""
_DIGIT = re.compile(r"\d")
_LITERAL = re.compile(r"[^\\\[\](){}.?*+|]+(?![?*])")
_LONG_RUN, _LONG_NUMBER, _NUMBER = b"a" * 16, b"0" * 9, b"0" * 7


class Clues:
    """What can be seen in a text without a regex: about a microsecond per kilobyte each."""

    __slots__ = ("long_number", "long_run", "low", "number", "text")

    def __init__(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.text = text
        self.low = lowered(text)
        self.long_run = _LONG_RUN in data.translate(_RUNS)
        """16 or more letters, digits and `-_.` in a row: the shortest key of a known form."""
        self.number = _NUMBER in data.translate(_DIGITS)
        """7 or more digits in a row."""
        self.long_number = _LONG_NUMBER in data.translate(_DIGITS, _BETWEEN_DIGITS)
        """9 or more digits, with nothing between them but what groups digits."""


Possible = Callable[[Clues], bool]


class Detector(msgspec.Struct, frozen=True):
    """Finds one kind."""

    kind: str
    possible: Possible
    """False only if `find` has nothing to find."""
    find: Callable[[str], Spans]

    def finds(self, clues: Clues) -> bool:
        """Whether there is anything."""
        return self.possible(clues) and next(self.find(clues.text), None) is not None


class Words:
    """Words in lower case, one of which must stand in a text for it to be worth a search; those that are not ASCII are
    looked for only in texts that are not either. `long`: a run as long as a key must stand there, too."""

    def __init__(self, *words: str, long: bool = False) -> None:
        self._all, self._ascii, self._long = words, tuple(filter(str.isascii, words)), long

    def __call__(self, clues: Clues) -> bool:
        if self._long and not clues.long_run:
            return False
        low = clues.low
        for word in self._ascii if low.isascii() else self._all:  # noqa: SIM110 - half of what `any` takes
            if word in low:
                return True
        return False

    def places(self, low: str) -> Spans:
        """Where one of them begins and ends in a text in lower case: a tenth of what one pattern over all takes."""
        for word in self._ascii if low.isascii() else self._all:
            at = low.find(word)
            while at >= 0:
                end = at + len(word)
                yield at, end
                at = low.find(word, end)


def form(
    kind: str, possible: Possible, pattern: str, is_one: Callable[[str], object] = bool, *, size: int = 0,
    most: int = sys.maxsize,
) -> Detector:  # fmt: skip
    """A detector of what is written in one way.

    Args:
        pattern: how; its group `value` is what is taken out, if it has one.
        is_one: whether what was found is one.
        size: only words of this length are searched, which takes a fraction of the time.
        most: candidates in one text that are asked whether they are one; beyond them their form alone does, as a text
            with so many is an export, or was made to cost time.
    """
    compiled = re.compile(pattern)
    group = "value" if "value" in compiled.groupindex else 0

    def find(text: str) -> Spans:
        asked = 0
        for at, word in long_words(text, size) if size else ((0, text),):
            for match in compiled.finditer(word):
                asked += 1
                if asked > most or is_one(match[group]):
                    start, end = match.span(group)
                    yield at + start, at + end

    return Detector(kind, possible, find)


def labelled(kind: str, names: Iterable[str], rest: str, kept: Callable[[str], str] = str) -> Detector:
    """A detector of what stands behind a name, and in which there is a digit.

    Args:
        names: patterns, each of which begins with letters that it must have; one may look ahead at some of them.
        rest: the pattern of what follows a name; its group `value` is what is taken out.
        kept: how much of that, from its beginning, is one.
    """
    words = Words(*{_LITERAL.findall(name.replace("(?=", ""))[0] for name in names})
    compiled = re.compile(f"(?i)(?:{'|'.join(names)}){rest}")

    def find(text: str) -> Spans:
        for at, _ in words.places(lowered(text)):
            if not (at and text[at - 1].isascii() and text[at - 1].isalpha()) and _DIGIT.search(text, at, at + _REACH):
                match = compiled.match(text, at)
                if match and (value := kept(match["value"])):
                    yield match.start("value"), match.start("value") + len(value)

    return Detector(kind, words, find)


def listed(words: str) -> tuple[str, ...]:
    """The entries of a list that is written with commas."""
    return tuple(word.strip() for word in words.split(","))


def lowered(text: str) -> str:
    """`text` in lower case, of the same length: one letter of Unicode's, a Turkish one, would become two."""
    return text.replace("\u0130", "i").lower()


def long_words(text: str, size: int) -> Iterator[tuple[int, str]]:
    """What stands between white space and has `size` characters or more, and where."""
    at = 0
    for word in text.split():
        if len(word) >= size:
            at = text.find(word, at)
            yield at, word
            at += len(word)

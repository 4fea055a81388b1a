"""What a detector is: a kind, a cheap look whether it can have anything to find, and the search itself."""

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

Spans = Iterator[tuple[int, int]]
"""Start and end of what is to be taken out."""
Keep = Callable[[str], object]

_RUNS = bytes(0x61 if (chr(code).isalnum() and code < 128) or code in b"-_." else 0x20 for code in range(256))
_DIGITS = bytes(0x30 if 0x30 <= code <= 0x39 else 0x20 for code in range(256))
_BETWEEN_DIGITS = b" -.()/\xc2\xa0"
"""What people write between the digits of one number; the last two are the no-break space."""
MOST_CHECKS = 2000
"""Candidates of a kind in one text that are asked whether they are one (up to 90 us each)."""
_REACH = 72
"""Characters from a word, within which the number that it names must begin."""
_DIGIT = re.compile(r"\d")
_LONG_RUN, _LONG_NUMBER, _NUMBER = b"a" * 16, b"0" * 9, b"0" * 7


class Clues:
    """What can be seen in a text without a regex: about a microsecond per kilobyte each."""

    __slots__ = ("ascii", "long_number", "long_run", "low", "number", "text")

    def __init__(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.text = text
        self.low = lowered(text)
        self.ascii = len(data) == len(text)
        self.long_run = _LONG_RUN in data.translate(_RUNS)
        """16 or more letters, digits and `-_.` in a row: the shortest key of a known form."""
        self.number = _NUMBER in data.translate(_DIGITS)
        """7 or more digits in a row."""
        self.long_number = _LONG_NUMBER in data.translate(_DIGITS, _BETWEEN_DIGITS)
        """9 or more digits, with nothing between them but what groups digits."""


class Detector(msgspec.Struct, frozen=True):
    """Finds one kind."""

    kind: str
    possible: Callable[[Clues], bool]
    """False only if `find` has nothing to find."""
    find: Callable[[str], Spans]

    def finds(self, clues: Clues) -> bool:
        """Whether there is anything."""
        return self.possible(clues) and next(self.find(clues.text), None) is not None


def listed(words: str) -> tuple[str, ...]:
    """The entries of a list that is written with commas."""
    return tuple(word.strip() for word in words.split(","))


def lowered(text: str) -> str:
    """`text` in lower case, of the same length: one letter of Unicode's, a Turkish one, would become two."""
    return text.replace("\u0130", "i").lower()


def matches(pattern: re.Pattern[str], text: str, group: int | str = 0, *, keep: Keep = lambda found: True) -> Spans:
    """Where `pattern` stands in `text`, or `group` of it, if it is one to keep."""
    return (match.span(group) for match in pattern.finditer(text) if keep(match[group]))


def checked(pattern: re.Pattern[str], is_one: Keep, text: str) -> Spans:
    """Where `pattern` stands in `text` and `is_one` says that it is one. Beyond `MOST_CHECKS` its form alone does: a
    text with so many is an export, or was made to cost time."""
    for number, match in enumerate(pattern.finditer(text)):
        if number >= MOST_CHECKS or is_one(match[0]):
            yield match.span()


def labelled(pattern: re.Pattern[str], words: Iterable[str], before: int, text: str) -> Iterator[re.Match[str]]:
    """What `pattern`, a name and a number, finds around one of its `words`, if a digit stands near enough behind it.

    Args:
        before: characters before the word, where the name that it is a part of begins; 0: it begins with the word.
    """
    for at, _ in places(lowered(text), words):
        inside = at and text[at - 1].isascii() and text[at - 1].isalpha()
        if (inside and not before) or not _DIGIT.search(text, at, at + _REACH):
            continue
        around = pattern.finditer(text, max(0, at - before), at + _REACH) if before else ()
        starts = [found.start() for found in around] if before else [at]
        yield from filter(None, (pattern.match(text, start) for start in starts))  # whole if it ends further off


def has(low: str, words: Iterable[str]) -> bool:
    """Whether one of `words` stands in a text in lower case."""
    for word in words:  # noqa: SIM110 - half of what `any` takes
        if word in low:
            return True
    return False


def says(words: Iterable[str], foreign: Iterable[str] = ()) -> Callable[[Clues], bool]:
    """Whether one of `words` stands in a text, or one of `foreign` in one that is not of ASCII alone."""
    return lambda clues: has(clues.low, words) or (not clues.ascii and has(clues.low, foreign))


def places(low: str, words: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where one of `words` begins and ends in a text in lower case: a tenth of what one pattern over all takes."""
    for word in words:
        at = low.find(word)
        while at >= 0:
            end = at + len(word)
            yield at, end
            at = low.find(word, end)


def long_words(text: str, size: int) -> Iterator[tuple[int, str]]:
    """What stands between white space and has `size` characters or more, and where."""
    at = 0
    for word in text.split():
        if len(word) >= size:
            at = text.find(word, at)
            yield at, word
            at += len(word)

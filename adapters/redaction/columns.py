"""Tables as tools print them: a column's name decides what is in it, as a field's does in JSON.

CSV with commas, semicolons or tabs, Markdown, and what database shells print. Only a header that names something is
read, with rows below it that have as many cells; a header of one column must have a rule below it.
"""

import re
from collections.abc import Callable, Iterator

from adapters.redaction.detector import Spans

_MOST_CELLS = 64
_DELIMITERS = ("|", "\t", ";", ",")
_RULE = re.compile(r"[\s|+:=-]+")
_LONGEST_HEADER = 1000
_NO_TITLE = frozenset("=:()[]{}<>\"'")


def columns(text: str, named: Callable[[str], str], secret: Callable[[str, str], bool]) -> Spans:
    """The cells of `text` that their column's name tells of.

    Args:
        named: what the values of a field of this name are; empty for most.
        secret: whether a value of what `named` says is to be taken out.
    """
    header: dict[int, str] = {}
    delimiter, count, ruled = "", 0, False
    for start, line in _lines(text):
        if header and line and _RULE.fullmatch(line):
            ruled = True
            continue
        if header and (delimiter or ruled):
            cells = list(_cells(line, start, delimiter))
            if len(cells) == count and line.strip():
                for place, first, last in cells:
                    name, value = header.get(place, ""), text[first:last]
                    if name and secret(name, value):
                        yield first, last
                continue
        header, ruled = {}, False
        if len(line) <= _LONGEST_HEADER:
            delimiter, count, header = _header(line, named)


def _header(line: str, named: Callable[[str], str]) -> tuple[str, int, dict[int, str]]:
    """The delimiter, the number of columns, and what is in those that tell."""
    for delimiter in _DELIMITERS:
        if delimiter in line:
            cells = [line[first:last] for _, first, last in _cells(line, 0, delimiter)]
            inner = cells[1:-1] if delimiter == "|" and not cells[0] else cells
            if not 1 < len(cells) <= _MOST_CELLS or not all(map(_is_title, inner)):
                return "", 0, {}
            found = {place: name for place, cell in enumerate(cells) if (name := named(cell.replace(" ", "_")))}
            return delimiter, len(cells), found
    word = line.strip()
    name = named(word) if _is_title(word) and " " not in word else ""
    return "", 1, {0: name} if name else {}


def _is_title(cell: str) -> bool:
    return 0 < len(cell) <= 40 and cell[0].isalpha() and not set(cell) & _NO_TITLE


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for line in text.splitlines(keepends=True):
        yield at, line.rstrip("\r\n")
        at += len(line)


def _cells(line: str, start: int, delimiter: str) -> Iterator[tuple[int, int, int]]:
    """(column, first, last) of what stands between delimiters, without blanks and quotes around it."""
    at = 0
    for place, cell in enumerate(line.split(delimiter) if delimiter else [line]):
        bare = cell.strip(" \t\"'`")
        first = at + (cell.index(bare) if bare else 0)
        yield place, start + first, start + first + len(bare)
        at += len(cell) + len(delimiter)

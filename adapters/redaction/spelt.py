"""Texts that say what they hold in another way than words do: tables, base64, percent signs, character references."""

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from adapters.redaction.detector import Clues, Spans, long_words, lowered, places
from adapters.redaction.names import COLUMNS, FOREIGN_PASSWORDS

_MOST_CELLS = 64
_DELIMITERS = ("|", "\t", ";", ",", ":")
_GAPS = re.compile(r"\s{2,}")
_RULE = re.compile(r"[\s|+:=-]+")
_LONGEST_HEADER = 1000
_LONGEST_ROW = 20_000
_NO_TITLE = frozenset("=()[]{}<>\"'")

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,65536}={0,2}(?![A-Za-z0-9+/=_-])")
_PERCENT = re.compile(r"(?:[\w.+~-]|%[0-9A-Fa-f]{2}){3,300}")
_REFERENCES = re.compile(r"&#(?:\d{2,5}|x[0-9A-Fa-f]{2,4});[^\s<>\"]{0,160}")
_LONGEST_BEFORE = 80
_INSERT = re.compile(r"(?i)\binsert\s{1,9}into\s{1,9}[\w.`\"\[\]]{1,120}\s{0,9}\(([^()]{1,1000})\)\s{0,9}values")
_STRING = r"'((?:[^'\\]|''|\\.)*+)'"
_ROW = re.compile(rf"\s{{0,40}},?\s{{0,40}}\(((?:[^()']|{_STRING}|\([^()']*+\))*+)\)", re.DOTALL)
_CELL = re.compile(rf"(?:^|,)\s*+(?:{_STRING}|([^,'\s]*+))", re.DOTALL)
_PAIR = re.compile(r"[\w.@+-]{1,64}:(?=\S*\d)(?=\S*[a-z])(?=\S*[^a-z\d])\S{5,128}")
_SHORTEST = 16
_WORDS = 0.97


def columns(text: str, named: Callable[[str], str], secret: Callable[[str, str], bool]) -> Spans:
    """The cells of a table in `text` that their column's name tells of, as a field's does in JSON: CSV, Markdown, and
    what shells print. Only a header that names something is read, with rows below it that have as many cells; a header
    of one column must have a rule below it.

    Args:
        named: what the values of a field of this name are; empty for most.
        secret: whether a value of what `named` says is to be taken out.
    """
    low, done = lowered(text), 0
    words = COLUMNS if low.isascii() else (*COLUMNS, *FOREIGN_PASSWORDS)
    for at, _ in sorted(places(low, words)):
        if at < done:
            continue
        start = low.rfind("\n", done, at) + 1 or done
        done = stop = _line_end(text, at)
        if stop - start > _LONGEST_HEADER:
            continue
        delimiter, count, header = _header(text[start:stop].rstrip("\r"), named)
        ruled = delimiter != ""
        while header and stop < len(text):
            first = stop + 1
            stop = _line_end(text, first)
            line = text[first:stop].rstrip("\r")
            if len(line) > _LONGEST_ROW:
                break
            if line and _RULE.fullmatch(line):
                ruled = True
                continue
            cells = list(_cells(line, first, delimiter))
            if not ruled or len(cells) != count or not line.strip():
                break
            done = stop
            for place, name in header.items():
                if secret(name, text[slice(*cells[place])]):
                    yield cells[place]


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    return len(text) if at < 0 else at


def _header(line: str, named: Callable[[str], str]) -> tuple[str, int, dict[int, str]]:
    """The delimiter, the number of columns, and what is in those that tell."""
    delimiter = next((one for one in _DELIMITERS if one in line), "  " if _GAPS.search(line.strip()) else "")
    titles = [line[first:last] for first, last in _cells(line, 0, delimiter)]
    inner = titles[1:-1] if delimiter == "|" and not titles[0] else titles
    if len(titles) > _MOST_CELLS or not all(map(_is_title, inner)) or (not delimiter and " " in titles[0]):
        return "", 0, {}
    return delimiter, len(titles), {place: name for place, title in enumerate(titles) if (name := named(title))}


def _is_title(cell: str) -> bool:
    return 0 < len(cell) <= 40 and cell[0].isalpha() and not set(cell) & _NO_TITLE


def _cells(line: str, start: int, delimiter: str) -> Iterator[tuple[int, int]]:
    """Where what stands between delimiters begins and ends, without blanks and quotes around it."""
    at = 0
    if delimiter == "  ":
        yield from ((start + match.start(), start + match.end()) for match in re.finditer(r"\S+(?: \S+)*", line))
        return
    for cell in _quoted(line) if delimiter == "," and '"' in line else line.split(delimiter) if delimiter else [line]:
        bare = cell.strip(" \t\"'`")
        first = start + at + (cell.index(bare) if bare else 0)
        yield first, first + len(bare)
        at += len(cell) + len(delimiter)


def _quoted(line: str) -> list[str]:
    """The cells of a line of CSV, in which a comma may stand in quotes."""
    cells, open_quote = [""], False
    for at, part in enumerate(line.split(",")):
        if at and open_quote:
            cells[-1] += "," + part
        else:
            cells[at and len(cells) :] = [part]
        open_quote ^= part.count('"') % 2 == 1
    return cells


def inserted(text: str, named: Callable[[str], str], secret: Callable[[str, str], bool]) -> Spans:
    """The same of the rows of SQL's `INSERT INTO users (name, password) VALUES (...), (...)`."""
    for match in _INSERT.finditer(text):
        titles = [named(title.strip(' \r\n\t`"[]')) for title in match[1].split(",")]
        at = match.end() if any(titles) else len(text)
        while row := _ROW.match(text, at):
            at, cells = row.end(), list(_CELL.finditer(row[1]))
            for title, cell in zip(titles, cells, strict=False):
                value = cell.lastindex or 0
                if title and len(cells) == len(titles) and secret(title, cell[value]):
                    yield row.start(1) + cell.start(value), row.start(1) + cell.end(value)


def spellings(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of each piece of `text` that is spelt in one of these ways. What has a find in what it
    says is taken out as a whole."""
    for at, word in long_words(text, _SHORTEST):
        for match in _BASE64.finditer(word):
            if said := _decoded(match[0]):
                yield at + match.start(), at + match.end(), said
    if "%" in text:
        for match in _PERCENT.finditer(text):
            if "%" in match[0] and (said := unquote(match[0])) != match[0]:
                yield *match.span(), said
    if "&#" in text:
        for match in _REFERENCES.finditer(text):
            start = match.start()
            while start and match.start() - start < _LONGEST_BEFORE and _is_bare(text[start - 1]):
                start -= 1
            yield start, match.end(), html.unescape(text[start : match.end()])


def _is_bare(one: str) -> bool:
    return not one.isspace() and one not in '<>"'


def may_be_spelt(clues: Clues) -> bool:
    return clues.long_run or "%" in clues.text or "&#" in clues.text


def is_pair(text: str) -> bool:
    """Whether `text` is what HTTP's Basic encodes: a user and a password, not a place in a list (`next:1712345`)."""
    return _PAIR.fullmatch(text) is not None


def _decoded(word: str) -> str:
    """The text in `word`, if there is one: long runs of letters decode to something, but seldom to text."""
    bare = word.rstrip("=")
    if not any(map(str.isupper, bare)) or len(bare) % 4 == 1:
        return ""
    try:
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), b"-_" if "-" in bare or "_" in bare else b"+/")
        said = data.decode()
    except (binascii.Error, ValueError):
        return ""
    plain = sum(one.isprintable() or one in "\r\n\t" for one in said)
    return said if plain >= _WORDS * len(said) else ""

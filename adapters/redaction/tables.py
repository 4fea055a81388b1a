"""Tables in a text: CSV, Markdown, what shells print, rows of SQL's INSERT. A cell is to its column's name what a field
of JSON is to its own."""

import re
from collections.abc import Callable, Iterator
from functools import partial

from adapters.redaction.detector import Detector, Spans, Words, listed, lowered
from adapters.redaction.names import PASSWORDS, SECRETS, is_secret

Named = Callable[[str], str]
"""What the values of a field of this name are; empty for most."""

_COLUMNS = Words(*PASSWORDS, *SECRETS, *listed("ssn, phone, telefon, mobile, tax, pesel, cpf, card, pin, licen, iban"))
"""Words in the names of columns that tell."""

_MOST_CELLS = 64
_LONGEST_HEADER = 1000
_LONGEST_ROW = 20_000
_CELLS = {mark: re.compile(rf'(?:^|{re.escape(mark)})("(?:[^"]|"")*+"|[^{mark}]*)') for mark in "|\t;,:"}
_CELLS |= {"  ": re.compile(r"(\S+(?: \S+)*)"), "": re.compile(r"(.+)")}
_RULE = re.compile(r"[\s|+:=-]+")
_TITLE = re.compile(r"[^\W\d_][^=()\[\]{}<>\"']{0,39}")
_INSERT = re.compile(r"(?i)\binsert\s{1,9}into\s{1,9}[\w.`\"\[\]]{1,120}\s{0,9}\(([^()]{1,1000})\)\s{0,9}values")
_STRING = r"'((?:[^'\\]|''|\\.)*+)'"
_ROW = re.compile(rf"\s{{0,40}},?\s{{0,40}}\(((?:[^()']|{_STRING}|\([^()']*+\))*+)\)", re.DOTALL)
_SQL_CELL = re.compile(rf"(?:^|,)\s*+(?:{_STRING}|([^,'\s]*+))", re.DOTALL)


def detectors(named: Named) -> tuple[Detector, ...]:
    """Detectors of the cells below the names that `named` knows."""
    return (
        Detector("secret", lambda clues: "\n" in clues.text and _COLUMNS(clues), partial(_columns, named=named)),
        Detector("secret", Words("insert"), partial(_inserted, named=named)),
    )


def _columns(text: str, named: Named) -> Spans:
    """The cells that their column's name tells of. Only a header that names something is read, with rows below it that
    have as many cells; a header of one column must have a rule below it."""
    low, done = lowered(text), 0
    for at, _ in sorted(_COLUMNS.places(low)):
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
            if line and _RULE.fullmatch(line[:_LONGEST_ROW]):
                ruled = True
                continue
            cells = list(_cells(line, delimiter)) if ruled and line.strip() and len(line) <= _LONGEST_ROW else []
            if len(cells) != count:
                break
            done = stop
            for place, kind in header.items():
                start, end = cells[place]
                if is_secret(kind, line[start:end]):
                    yield first + start, first + end


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    return len(text) if at < 0 else at


def _header(line: str, named: Named) -> tuple[str, int, dict[int, str]]:
    """The delimiter, the number of columns, and what is in those that tell."""
    delimiter = next((mark for mark in _CELLS if mark in line.strip()), "")
    titles = [line[start:end] for start, end in _cells(line, delimiter)]
    inner = titles[1:-1] if delimiter == "|" and titles and not titles[0] else titles
    if len(titles) > _MOST_CELLS or not all(map(_TITLE.fullmatch, inner)) or (not delimiter and " " in line.strip()):
        return "", 0, {}
    return delimiter, len(titles), {place: kind for place, title in enumerate(titles) if (kind := named(title))}


def _cells(line: str, delimiter: str) -> Iterator[tuple[int, int]]:
    """Where what stands between delimiters begins and ends, without blanks and quotes around it."""
    for match in _CELLS[delimiter].finditer(line):
        bare = match[1].strip(" \t\"'`")
        start = match.start(1) + (match[1].index(bare) if bare else 0)
        yield start, start + len(bare)


def _inserted(text: str, named: Named) -> Spans:
    """The same of the rows of SQL's `INSERT INTO users (name, password) VALUES (...), (...)`."""
    for match in _INSERT.finditer(text):
        titles = [named(title.strip(' \r\n\t`"[]')) for title in match[1].split(",")]
        at = match.end() if any(titles) else len(text)
        while row := _ROW.match(text, at):
            at, cells = row.end(), list(_SQL_CELL.finditer(row[1]))
            for title, cell in zip(titles, cells, strict=False):
                value = cell.lastindex or 0
                if title and len(cells) == len(titles) and is_secret(title, cell[value]):
                    yield row.start(1) + cell.start(value), row.start(1) + cell.end(value)

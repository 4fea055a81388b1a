"""What commands print, in one place: tables for people on a terminal, aligned plain lines in a pipe, and JSON.

No string is markup: reasons, goals and errors are other people's words. What is coloured is a `Text`.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text


def print_json(document: Any) -> None:
    """Print `document`, of builtins, as one JSON document on standard output."""
    print(json.dumps(document, indent=2), flush=True)


class Screen(Console):
    """A console that prints strings as they are."""

    def render_str(
        self, text: str, *, style: StyleType = "", justify: Any = None, overflow: Any = None, **_: Any
    ) -> Text:
        """Called for every string: what is printed, and a table's cells, headings, title and caption."""
        return Text(_printable(text), style, justify=justify, overflow=overflow)


def coloured(text: str, style: str) -> Text:
    """`text` as it is, in a colour."""
    return Text(_printable(text), style)


def _printable(text: str) -> str:
    """`text` without what would move a terminal's cursor or colour it."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def screen(file: TextIO | None = None) -> Screen:
    """Where people read, standard output unless told otherwise.

    A terminal has its own width (or that of COLUMNS). In a pipe or a file no line is wrapped or cut, and nothing is
    coloured, whatever the environment asks for.
    """
    out = file or sys.stdout
    if out.isatty():
        return Screen(file=out, highlight=False)
    return Screen(file=out, force_terminal=False, color_system=None, soft_wrap=True, highlight=False)


class OutputTable(Table):
    """A table with lines and colours on a terminal. Anywhere else each row is one line, its cells two or more spaces
    apart; within a cell there is never more than one, and an empty cell below a heading is a hyphen."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.is_terminal:
            yield from super().__rich_console__(console, options)
        else:
            yield Segment("".join(f"{line}\n" for line in self._lines()))

    def _lines(self) -> Iterator[str]:
        cells = [[_plain(cell) for cell in column.cells] for column in self.columns]
        if self.show_header:
            headings = [_plain(column.header) for column in self.columns]
            cells = [[head, *(cell or "-" for cell in column)] for head, column in zip(headings, cells, strict=True)]
        widths = [max(map(cell_len, column), default=0) for column in cells]
        if self.title:
            yield _plain(self.title)
        for row in zip(*cells, strict=True):
            line: list[str] = []
            for cell, width, column in zip(row, widths, self.columns, strict=True):
                room = " " * (width - cell_len(cell))
                line.append(room + cell if column.justify == "right" else cell + room)
            yield "  ".join(line).rstrip()
        if self.caption:
            yield _plain(self.caption)


def _plain(cell: RenderableType) -> str:
    """`cell` without colours, on one line: its lines stand behind semicolons."""
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return "; ".join(_printable(" ".join(line.split())) for line in text.splitlines() if line.strip())

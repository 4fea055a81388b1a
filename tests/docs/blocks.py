"""The fenced blocks of the documentation, and what stands before each: shared by all tests of this suite.

A comment on the line before a block says how it is to be taken:

    <!-- not run: WHY -->     its commands are checked by the parsers that they are for, and not carried out
    <!-- exit N -->           the block is run and must end with this status
    <!-- of PROGRAM -->       a file of another program; it must parse, and is not held against our settings
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```(\S*)\s*$")
_MARK = re.compile(r"^\s*<!-- (not run: .+|exit \d+|of .+) -->\s*$")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block."""

    page: str
    """Path below the repository's root."""
    line: int
    """Of its opening fence, from 1."""
    language: str
    text: str
    mark: str = ""
    """What the comment before it says."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str:
        """Why it is not run; empty if it is."""
        return self.mark.partition("not run: ")[2]

    @property
    def status(self) -> int:
        """The exit status that is expected."""
        return int(self.mark.partition("exit ")[2] or 0)

    @property
    def foreign(self) -> bool:
        """Whether it is another program's file."""
        return self.mark.startswith("of ")


def pages() -> list[Path]:
    """README first: what it brings up is what the other pages talk about."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "SECURITY.md"]
    return [path for path in found if path.exists()]


def blocks(*languages: str) -> list[Block]:
    """All blocks in one of `languages`, page by page, in order."""
    return [block for page in pages() for block in blocks_of(page) if block.language in languages]


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of one page."""
    name = str(page.relative_to(ROOT))
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        indent, language = opened.groups()
        end = next((at for at in range(number + 1, len(lines)) if lines[at].strip() == "```"), None)
        if end is None:
            raise ValueError(f"{name}:{number + 1}: the fence is never closed")
        above = [line for line in lines[max(0, number - 2) : number] if line.strip()]
        mark = _MARK.match(above[-1]) if above else None
        text = "\n".join(line.removeprefix(indent) for line in lines[number + 1 : end]) + "\n"
        yield Block(page=name, line=number + 1, language=language, text=text, mark=mark[1] if mark else "")
        number = end + 1


def prose(page: Path) -> str:
    """A page without its fenced blocks, line by line in place."""
    lines, fenced = page.read_text(encoding="utf-8").splitlines(), False
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        fenced ^= bool(fence)
        if fenced or fence:
            lines[number] = ""
    return "\n".join(lines)

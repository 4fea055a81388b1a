"""Redacts one call's strings: plain text, JSON inside a string (tool arguments), values of fields by their name.

It remembers what it found, so that a secret that was recognised by its surroundings (`password=...`) is taken out of
later texts that repeat it without them. Only of later ones: what stands before must look as it did in the call before.
"""

import re
from typing import Any

import msgspec

from adapters.redaction import credentials
from adapters.redaction.finder import Edit, Finder, applied, is_worth_knowing

_LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|-?\d[\d.eE+-]{0,400}', re.DOTALL)
_DEEPEST = 6
"""JSON in a string in JSON ...; beyond that it is read as text."""
_MOST_KNOWN = 64
_SHORTEST = 3
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\r\n"
_FILE = 1024
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Scrub:
    """One call's redaction. `finds` counts what was taken out by kind."""

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.finds: dict[str, int] = {}
        self.known: dict[str, str] = {}
        self.taken: dict[str, str] = {}
        """Placeholders by value, of all that was taken out."""

    def fork(self) -> "Scrub":
        """One that knows what this one knows and counts with it: for answers that do not see each other."""
        other = Scrub(self.finder)
        other.finds, other.known, other.taken = self.finds, dict(self.known), self.taken
        return other

    def string(self, text: str, key: str = "") -> str:
        """`text`, the value of a field `key` if it is one's, without what is to be taken out."""
        edits = self.edits(text, key)
        self.count(edits)
        return applied(text, edits) if edits else text

    def edits(self, text: str, key: str = "", depth: int = 0) -> list[Edit]:
        """What to take out of `text`; what was found is known from now on."""
        if len(text) < _SHORTEST or is_file(text):
            return []
        if key and self.finder.fields and (edit := self._named(text, key)):
            edits = [edit]
        elif depth < _DEEPEST and container(text) is not None:
            edits = self._inside(text, depth)
        else:
            edits = self.finder.edits(text, self.known)
        for edit in edits:
            if edit.value:
                self.taken[edit.value] = edit.placeholder
            for value, kind in ((edit.value, edit.kind), *edit.inside):
                if value and len(self.known) < _MOST_KNOWN and is_worth_knowing(value):
                    self.known.setdefault(value, kind)
        return edits

    def number(self, value: int, key: str = "") -> int | str:
        """A number of a JSON body, or the placeholder for it."""
        edit = self._number(value, 0, key)
        if edit is None:
            return value
        self.count([edit])
        self.taken[edit.value] = edit.placeholder
        return edit.placeholder

    def count(self, edits: list[Edit]) -> None:
        """Put `edits` into `finds`."""
        for edit in edits:
            self.finds[edit.kind] = self.finds.get(edit.kind, 0) + 1

    def _named(self, text: str, key: str) -> Edit | None:
        name = self.finder.named(key)
        if not name or not credentials.named_secret(name, text):
            return None
        return self.finder.edit(self.finder.kind(name), 0, len(text), text)

    def _number(self, value: int, at: int, key: str) -> Edit | None:
        kind = self.finder.number(value, key)
        return self.finder.edit(kind, at, at + len(str(value)), str(value)) if kind else None

    def _inside(self, text: str, depth: int) -> list[Edit]:
        """Edits of the strings and numbers in `text`, which is JSON and stays so, byte for byte around them."""
        found: list[Edit] = []
        key = title = ""
        for match in _LITERAL.finditer(text):
            start, end = match.span()
            if text[start] != '"':
                if match[0].isdecimal() and (edit := self._number(int(match[0]), start, key)):
                    found.append(msgspec.structs.replace(edit, placeholder=f'"{edit.placeholder}"'))
                key = ""
                continue
            is_key = match[2] is not None
            start, end = match.span(1)
            raw = match[1]
            inner = str(msgspec.json.decode(f'"{raw}"')) if "\\" in raw else raw
            of = title if key == "value" and title else key
            if not is_key and key in ("name", "key", "field", "label"):
                title = inner if self.finder.fields and self.finder.named(inner) else ""
            edits = self.edits(inner, "" if is_key else of, depth + 1)
            if edits and inner is raw:
                found += (
                    msgspec.structs.replace(edit, start=start + edit.start, end=start + edit.end) for edit in edits
                )
            elif edits:
                # Positions mean nothing in an escaped literal: it is written anew, as one edit.
                literal = msgspec.json.encode(applied(inner, edits)).decode()[1:-1]
                found.append(Edit(start, end, literal, edits[0].kind, ""))
                self.count(edits[1:])
            key = inner if is_key else ""
        return found


def container(text: str) -> Any:
    """The object or list that `text` is in JSON, or None."""
    first, last = text[:1], text[-1:]
    if first in " \t\r\n" or last in " \t\r\n":
        text = text.strip()
        first, last = text[:1], text[-1:]
    if not (first == "{" and last == "}") and not (first == "[" and last == "]"):
        return None
    try:
        return msgspec.json.decode(text)
    except (*_UNREADABLE, UnicodeEncodeError):
        return None


def is_file(text: str) -> bool:
    """Whether `text` is an embedded file in base64, which holds no text and is long."""
    if len(text) < _FILE:
        return False
    if text.startswith("data:") and ";base64," in text[:100]:
        return True
    return text.isascii() and not text.encode().translate(None, _BASE64)

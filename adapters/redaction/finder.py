"""Text in, the places to be taken out: all detectors, the user's patterns, what is allowed, overlaps resolved.

The same text always gives the same places, whatever call it stands in: stitching compares the conversation of one call
with that of the next. The only thing from outside is a value that was found earlier in the same conversation.
"""

import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

from adapters.redaction import credentials, identity, national, prose
from adapters.redaction.columns import columns
from adapters.redaction.detector import Clues, Detector, Spans
from adapters.redaction.encoded import is_pair, spellings
from adapters.redaction.placeholders import PLACEHOLDER, Placeholders
from adapters.redaction.settings import KINDS, RedactionSettings, compiled

_SHORTEST_KNOWN = 6
_MOST_NAMES = 4096
_MOST_ROUNDS = 8
_EMBEDDED = re.compile(r";base64,[A-Za-z0-9+/=_-]{64,}")


class Edit(msgspec.Struct, frozen=True):
    """`text[start:end]` is to become `placeholder`."""

    start: int
    end: int
    placeholder: str
    kind: str
    value: str
    inside: tuple[tuple[str, str], ...] = ()
    """(value, kind) of the finds that were merged into it: each may be repeated alone, as the password of a URL."""


class Finder:
    """Knows what to search for."""

    def __init__(self, settings: RedactionSettings, placeholders: Placeholders) -> None:
        """
        Raises:
            InvalidRedaction: an own pattern is no regular expression.
        """
        self._placeholders = placeholders
        known = (*credentials.DETECTORS, *prose.DETECTORS, *identity.DETECTORS, *national.DETECTORS)
        self._plain = [one for one in known if one.kind in settings.kinds]
        self._detectors = [*self._plain]
        if "secret" in settings.kinds:
            self._detectors += (
                Detector("secret", lambda clues: "\n" in clues.text and credentials.tells(clues.low), self._columns),
                Detector("secret", _may_be_encoded, self._encoded),
            )
        self._own = [
            (pattern.name, compiled(pattern.regex, f"redact.patterns[{number}].regex"))
            for number, pattern in enumerate(settings.patterns)
        ]
        self._rank = {kind: rank for rank, kind in enumerate((*(name for name, _ in self._own), *KINDS))}
        self._allowed = frozenset(settings.allow)
        self._allowed_patterns = [
            compiled(regex, f"redact.allow[{number}]") for number, regex in enumerate(settings.allow_patterns)
        ]
        self._names: dict[str, str] = {}
        self._kinds = frozenset(settings.kinds)
        self.fields = bool(self._kinds & {"secret", *credentials.PERSONAL_KINDS})
        """Fields are judged by their name."""
        self._numbers = "card" in settings.kinds

    def clean(self, texts: Sequence[str], known: Collection[str] = ()) -> bool:
        """Whether there is nothing in any of `texts`; the cheap way to find that out for most calls."""
        joined = "\n\x00\n".join(texts)
        clues = Clues(masked(joined))
        if any(value in joined for value in known):
            return False
        for detector in self._detectors:
            if detector.possible(clues) and next(detector.find(clues.text), None) is not None:
                return False
        return not any(pattern.search(text) for _, pattern in self._own for text in texts)

    def edits(self, text: str, known: dict[str, str]) -> list[Edit]:
        """What to take out of `text`, in order, without overlaps.

        Args:
            known: kinds of the values that were found before, which are taken out wherever they stand.
        """
        edits: list[Edit] = []
        # What is left between placeholders is searched again until nothing is found, so that doing it twice is the same
        # as doing it once. One more round is the rule; the bound is for texts that were made to need many.
        pieces = _between(text, [match.span() for match in PLACEHOLDER.finditer(text)] if "[REDACTED:" in text else [])
        for _ in range(_MOST_ROUNDS):
            left: list[tuple[int, int]] = []
            for start, end in pieces:
                found = self._search(text, start, end, known)
                if found:
                    edits += found
                    left += _between(text, [(edit.start, edit.end) for edit in found], start, end)
            if not (pieces := left):
                break
        edits.sort(key=lambda edit: edit.start)
        return edits

    def named(self, key: str) -> str:
        """`credentials.named`, remembered: the fields of a protocol are few and come with every call."""
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            name = credentials.named(key)
            self._names[key] = name = name if self.kind(name) in self._kinds else ""
        return name

    @staticmethod
    def kind(name: str) -> str:
        """The kind of a find in a field that `named` calls `name`."""
        return name if name in credentials.PERSONAL_KINDS else "secret"

    def number(self, value: int, key: str) -> str:
        """The kind of a number in JSON, by its digits or by the name of its field; empty if it is to stay."""
        digits = str(value)
        if self._numbers and len(digits) > 12 and identity.is_card(digits):
            return "card"
        name = self.named(key) if self.fields and value > 99 and key else ""
        return self.kind(name) if name and credentials.named_number(name, digits) else ""

    def edit(self, kind: str, start: int, end: int, value: str) -> Edit | None:
        """The edit for a value that was found in another way, unless it is allowed."""
        return None if self._stays(value) else Edit(start, end, self._placeholders.of(kind, value), kind, value)

    def _columns(self, text: str) -> Spans:
        return columns(text, self.named, credentials.named_secret)

    def _encoded(self, text: str) -> Spans:
        for start, end, said in spellings(text):
            clues = Clues(said)
            if is_pair(said) or any(
                one.possible(clues) and next(one.find(said), None) is not None for one in self._plain
            ):
                yield start, end

    def _search(self, text: str, start: int, end: int, known: dict[str, str]) -> list[Edit]:
        part = text if start == 0 and end == len(text) else text[start:end]
        clues = Clues(masked(part))
        spans: list[tuple[int, int, str]] = []
        for detector in self._detectors:
            if detector.possible(clues):
                spans += ((*span, detector.kind) for span in detector.find(clues.text))
        for name, pattern in self._own:
            group = "value" if "value" in pattern.groupindex else 0
            spans += ((*match.span(group), name) for match in pattern.finditer(part))
        for value, kind in known.items():
            if value in part:
                spans += ((*span, kind) for span in _words(part, value))
        spans = [span for span in spans if span[0] < span[1] and not self._stays(part[span[0] : span[1]])]
        if not spans:
            return []
        return [self._made(part, start, group) for group in _merged(spans)]

    def _made(self, part: str, offset: int, group: list[tuple[int, int, str]]) -> Edit:
        start, end = group[0][0], max(span[1] for span in group)
        kind = min((span[2] for span in group), key=self._rank.__getitem__)
        value = part[start:end]
        inside = tuple((part[a:b], other) for a, b, other in group) if len(group) > 1 else ()
        return Edit(offset + start, offset + end, self._placeholders.of(kind, value), kind, value, inside)

    def _stays(self, value: str) -> bool:
        if value in self._allowed:
            return True
        return any(pattern.fullmatch(value) for pattern in self._allowed_patterns)


def _may_be_encoded(clues: Clues) -> bool:
    return clues.long_run or "%" in clues.text or "&#" in clues.text


def _merged(spans: list[tuple[int, int, str]]) -> Iterable[list[tuple[int, int, str]]]:
    """Those that overlap together: all of them goes, under the kind that ranks first."""
    spans.sort()
    group, last = [spans[0]], spans[0][1]
    for span in spans[1:]:
        if span[0] < last:
            group.append(span)
            last = max(last, span[1])
        else:
            yield group
            group, last = [span], span[1]
    yield group


def masked(text: str) -> str:
    """`text` with the payload of embedded files blanked, of the same length: it is no text, and long."""
    if ";base64," not in text:
        return text
    return _EMBEDDED.sub(lambda match: " " * len(match[0]), text)


def is_worth_knowing(value: str) -> bool:
    """Whether other occurrences of `value` can be told from ordinary words and numbers."""
    if len(value) < _SHORTEST_KNOWN:
        return False
    return len(value) >= 12 or not (value.isalpha() or value.isdigit())


def applied(text: str, edits: Sequence[Edit]) -> str:
    """`text` after `edits`, which are in order."""
    parts: list[str] = []
    at = 0
    for edit in edits:
        parts += (text[at : edit.start], edit.placeholder)
        at = edit.end
    return "".join((*parts, text[at:]))


def _words(text: str, value: str) -> Iterable[tuple[int, int]]:
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not (at and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
            yield at, end
        at = text.find(value, end)


def _between(text: str, gaps: list[tuple[int, int]], start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """What `gaps`, in order, leave of `text[start:end]`."""
    pieces: list[tuple[int, int]] = []
    for first, last in gaps:
        if first > start:
            pieces.append((start, first))
        start = last
    if (stop := len(text) if end is None else end) > start:
        pieces.append((start, stop))
    return pieces

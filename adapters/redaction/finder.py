"""Text in, the places to be taken out: all detectors, the user's patterns, what is allowed, overlaps resolved.

The same text always gives the same places, whatever call it stands in: stitching compares the conversation of one call
with that of the next. The only thing from outside is a value that was found earlier in the same conversation.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from adapters.redaction import keys, names, personal, secrets, spelt, tables
from adapters.redaction.detector import Clues, form
from adapters.redaction.settings import KINDS, RedactionSettings, compiled, read_key, require_valid

PLACEHOLDER = re.compile(r"\[REDACTED:[a-z0-9_]{1,32}(?::[0-9a-f]{8})?\]")
_SHORTEST_KNOWN = 6
_LONGEST_NAME = 100
_ENOUGH = 400
_MOST_ROUNDS = 8
"""One more round is the rule; the bound is for texts that were made to need many."""
_LEAST, _LEAST_PERSONAL = 99, 999_999
"""No number of JSON that is not above it is a code, or one of a person's."""
SMALLEST_CARD = 10**12
_EMBEDDED = re.compile(
    r";base64,[A-Za-z0-9+/=_-]{64,}"
    r"|(?<=-----BEGIN )(?:CERTIFICATE(?: REQUEST)?|(?:RSA |EC )?PUBLIC KEY)-----"
    r"(?:\r?\n[A-Za-z0-9+/]{60,76})+(?:\r?\n[A-Za-z0-9+/=]{1,76})?(?=\r?\n-----END )"
)


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

    def __init__(self, settings: RedactionSettings) -> None:
        """
        Raises:
            InvalidRedaction: an own pattern is no regular expression, or the key cannot be read.
        """
        require_valid(settings)
        self._key = read_key(settings)
        self._kinds = frozenset(settings.kinds)
        plain = [one for one in (*keys.DETECTORS, *secrets.DETECTORS, *personal.DETECTORS) if one.kind in self._kinds]
        other = (*tables.detectors(self.named), *spelt.detectors(plain))
        self._detectors = plain + [one for one in other if one.kind in self._kinds]
        self._own = [form(own.name, lambda clues: True, own.regex) for own in settings.patterns]
        self._rank = {kind: rank for rank, kind in enumerate((*(own.kind for own in self._own), *KINDS))}
        self._allowed = [
            compiled(text[1:-1] if is_regex(text) else re.escape(text), f"redact.allow[{number}]")
            for number, text in enumerate(settings.allow)
        ]

    def placeholder(self, kind: str, value: str) -> str:
        """What stands where `value` was taken out: `[REDACTED:email]`, or `[REDACTED:email:1f0c9a3e]` with a key.

        The digits tell two values apart: a conversation about two customers cannot be followed if both are
        `[REDACTED:email]`. Without a key anybody could try all card numbers against them, so without a key there are
        none."""
        return f"[REDACTED:{kind}:{self.digest(kind, value, 8)}]" if self._key else f"[REDACTED:{kind}]"

    def digest(self, kind: str, value: str, digits: int) -> str:
        """The first `digits` hex digits of the HMAC; without the key they do not reveal `value`."""
        message = f"{kind}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:digits]

    def clean(self, texts: Sequence[str], known: Collection[str] = ()) -> bool:
        """Whether there is nothing in any of `texts`; the cheap way to find that out for most calls."""
        for joined in _joined(texts):
            clues = Clues(masked(joined))
            if any(value in joined for value in known) or any(one.finds(clues) for one in self._detectors):
                return False
        return not any(next(own.find(text), None) for own in self._own for text in texts)

    def edits(self, text: str, known: dict[str, str]) -> list[Edit]:
        """What to take out of `text`, in order, without overlaps. What is left between placeholders is searched again
        until nothing is found, so that doing it twice is the same as doing it once.

        Args:
            known: kinds of the values that were found before, which are taken out wherever they stand.
        """
        edits: list[Edit] = []
        taken = [match.span() for match in PLACEHOLDER.finditer(text)] if "[REDACTED:" in text else []
        for _ in range(_MOST_ROUNDS):
            gaps = zip([0, *(end for _, end in taken)], [*(start for start, _ in taken), len(text)], strict=True)
            found = [edit for gap in gaps if gap[0] < gap[1] for edit in self._search(text, *gap, known)]
            if not found:
                break
            edits += found
            taken = sorted([*taken, *((edit.start, edit.end) for edit in found)])
        return sorted(edits, key=lambda edit: edit.start)

    def field(self, name: str, value: str | int) -> Edit | None:
        """The edit for the whole of `value`, if the name of its field tells; or the digits of a number of JSON."""
        text = str(value)
        told = self.named(name) if name else ""
        if isinstance(value, int):
            if "card" in self._kinds and value > SMALLEST_CARD and personal.is_card(text):
                return self.whole("card", text)
            least = _LEAST_PERSONAL if told in names.PERSONAL_KINDS else _LEAST
            told = told if told in names.OF_NUMBERS and value > least else ""
        return self.whole(self._kind(told), text) if told and names.is_secret(told, text) else None

    def named(self, name: str) -> str:
        """`names.named`, of the kinds that are searched for."""
        told = names.named(name) if len(name) <= _LONGEST_NAME else ""
        return told if self._kind(told) in self._kinds else ""

    @staticmethod
    def _kind(told: str) -> str:
        return told if told in names.PERSONAL_KINDS else "secret"

    def whole(self, kind: str, value: str) -> Edit | None:
        """The edit for all of `value`, which was found in another way, unless it is allowed."""
        if self._stays(value):
            return None
        return Edit(0, len(value), self.placeholder(kind, value), kind, value)

    def _search(self, text: str, start: int, end: int, known: dict[str, str]) -> list[Edit]:
        part = text[start:end]
        clues = Clues(masked(part))
        spans = [(*span, one.kind) for one in self._detectors if one.possible(clues) for span in one.find(clues.text)]
        spans += [(*span, own.kind) for own in self._own for span in own.find(part)]
        for value, kind in known.items():
            if value in part:
                alone = rf"(?<![^\W_]){re.escape(value)}(?![^\W_])"
                spans += ((*match.span(), kind) for match in re.finditer(alone, part))
        spans = [span for span in spans if span[0] < span[1] and not self._stays(part[span[0] : span[1]])]
        return [self._made(part, start, group) for group in merged(spans)]

    def _made(self, part: str, offset: int, group: list[tuple[int, int, str]]) -> Edit:
        start, end = group[0][0], max(span[1] for span in group)
        kind = min((span[2] for span in group), key=self._rank.__getitem__)
        value = part[start:end]
        inside = tuple((part[a:b], other) for a, b, other in group) if len(group) > 1 else ()
        return Edit(offset + start, offset + end, self.placeholder(kind, value), kind, value, inside)

    def _stays(self, value: str) -> bool:
        return any(pattern.fullmatch(value) for pattern in self._allowed)


def is_regex(text: str) -> bool:
    """Whether what is allowed is a pattern, written `/.../`, rather than a value as it stands."""
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


def merged(spans: list[tuple[int, int, str]]) -> list[list[tuple[int, int, str]]]:
    """Those that overlap together: all of them goes, under the kind that ranks first."""
    groups: list[list[tuple[int, int, str]]] = []
    last = 0
    for span in sorted(spans):
        if groups and span[0] < last:
            groups[-1].append(span)
        else:
            groups.append([span])
        last = max(last, span[1])
    return groups


def _joined(texts: Sequence[str]) -> Iterator[str]:
    """`texts`, the small ones together: each search has its price, and what one text is suspected of costs those beside
    it, too."""
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size >= _ENOUGH:
            yield "\n\x00\n".join(parts)
            parts, size = [], 0
    yield "\n\x00\n".join(parts)


def masked(text: str) -> str:
    """`text` with the payload of embedded files and certificates blanked, of the same length: no text, and long."""
    told = ";base64," in text or "-----BEGIN " in text
    return _EMBEDDED.sub(lambda match: " " * len(match[0]), text) if told else text


def is_worth_knowing(value: str) -> bool:
    """Whether other occurrences of `value` can be told from ordinary words and numbers."""
    return len(value) >= 12 or (len(value) >= _SHORTEST_KNOWN and not (value.isalpha() or value.isdigit()))


def applied(text: str, edits: Iterable[Edit]) -> str:
    """`text` after `edits`, which are in order."""
    parts: list[str] = []
    at = 0
    for edit in edits:
        parts += (text[at : edit.start], edit.placeholder)
        at = edit.end
    return "".join((*parts, text[at:]))

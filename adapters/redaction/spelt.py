"""Texts that say what they hold in another way than words do: base64, percent signs, character references."""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

from adapters.redaction.detector import Clues, long_words

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,65536}={0,2}(?![A-Za-z0-9+/=_-])")
_PERCENT = re.compile(r"(?:[\w.+~-]|%[0-9A-Fa-f]{2}){3,300}")
_REFERENCES = re.compile(r"&#(?:\d{2,5}|x[0-9A-Fa-f]{2,4});[^\s<>\"]{0,160}")
_LONGEST_BEFORE = 80
_PAIR = re.compile(r"[\w.@+-]{1,64}:(?=\S*\d)(?=\S*[a-z])(?=\S*[^a-z\d])\S{5,128}")
_SHORTEST = 16
_WORDS = 0.97


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

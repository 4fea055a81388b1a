"""Text in another spelling: base64, percent signs, character references. What it says is searched; what has a find in
it is taken out as a whole."""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

from adapters.redaction.detector import long_words

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,65536}={0,2}(?![A-Za-z0-9+/=_-])")
_PERCENT = re.compile(r"(?:[\w.+~-]|%[0-9A-Fa-f]{2}){3,300}")
_REFERENCES = re.compile(r"[^\s<>\"]{0,80}(?:&#(?:\d{2,5}|x[0-9A-Fa-f]{2,4});)[^\s<>\"]{0,160}")
_PAIR = re.compile(r"[\w.@+-]{1,64}:(?=\S*\d)(?=\S*[a-z])(?=\S*[^a-z\d])\S{5,128}")
_SHORTEST = 16
_WORDS = 0.97


def spellings(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of each piece of `text` that is spelt in one of these ways."""
    for at, word in long_words(text, _SHORTEST):
        for match in _BASE64.finditer(word):
            if said := _decoded(match[0]):
                yield at + match.start(), at + match.end(), said
    if "%" in text:
        for match in _PERCENT.finditer(text):
            if "%" in match[0] and (said := unquote(match[0])) != match[0]:
                yield match.start(), match.end(), said
    if "&#" in text:
        for match in _REFERENCES.finditer(text):
            if (said := html.unescape(match[0])) != match[0]:
                yield match.start(), match.end(), said


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

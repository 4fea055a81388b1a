"""Texts that say what they hold in another way than words do: base64, percent signs, character references."""

import base64
import binascii
import html
import re
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import unquote

from adapters.redaction.detector import Clues, Detector, form

_WORDS = 0.97
_PAIR = re.compile(r"[\w.@+-]{1,64}:(?=\S*\d)(?=\S*[a-z])(?=\S*[^a-z\d])\S{5,128}")
"""What HTTP's Basic encodes: a user and a password, not a place in a list (`next:1712345`)."""


def detectors(plain: Sequence[Detector]) -> tuple[Detector, ...]:
    """Detectors of what is spelt in one of these ways and says something in which one of `plain` has a find. It is
    taken out as a whole."""

    def tells(piece: str, read: Callable[[str], str]) -> bool:
        said = read(piece)
        if not said or said == piece:
            return False
        clues = Clues(said)
        return _PAIR.fullmatch(said) is not None or any(one.finds(clues) for one in plain)

    return (
        form(
            "secret", lambda clues: clues.long_run,
            r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,65536}={0,2}(?![A-Za-z0-9+/=_-])",
            partial(tells, read=_decoded), size=16,
        ),
        form(
            "secret", lambda clues: "%" in clues.text, r"(?:[\w.+~-]|%[0-9A-Fa-f]{2}){3,300}",
            partial(tells, read=unquote),
        ),
        form(
            "secret", lambda clues: "&#" in clues.text,
            r"[^\s<>\"]{0,80}?&#(?:\d{2,5}|x[0-9A-Fa-f]{2,4});[^\s<>\"]{0,160}", partial(tells, read=html.unescape),
        ),
    )  # fmt: skip


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

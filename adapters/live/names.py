"""Names of operations as chat APIs take them: at most 64 of letters, digits, _ and -, each once.

What an API calls its operations (`GET /v1/users/{id}`, `files.read`, 90 characters of an operation id) becomes such a
name, and is found again by it. The same names come out for the same set of operations, in whatever order they are
listed: a policy's weights and an operator's allow-list hold on to them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from adapters.live import MAX_NAME

_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
DIGITS = 8
"""Hexadecimal digits of the digest behind a name that is not unique without it."""


def tool_names(originals: Iterable[str]) -> dict[str, str]:
    """A name for each of `originals` (a repeated one counts once).

    What is a name already keeps it. Others lose what a name cannot have; where that makes two alike, or is too long,
    a digest of the original follows. In the order given.
    """
    wanted = {original: cleaned(original) for original in originals}
    claims = Counter(wanted.values())
    return {
        original: name
        if 0 < len(name) <= MAX_NAME and (name == original or claims[name] == 1)
        else f"{name[: MAX_NAME - DIGITS - 1]}_{digest(original)}".lstrip("_")
        for original, name in wanted.items()
    }


def cleaned(original: str) -> str:
    """`original` in the letters that a name may have, of any length."""
    return original if original and not _OTHER.search(original) else _OTHER.sub("_", original).strip("_")


def digest(original: str) -> str:
    """Digits that belong to `original` alone."""
    return hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]

"""Names of tools and arguments: what a document calls them, in the letters and the length that chat APIs take.

Names are functions of the operation itself (its id, method and path), so that they stay when a document grows or is put
into another order; where two would have one name, both get digits made from their method and path.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from adapters.live import MAX_NAME

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS = 8


def tool_names(operations: Sequence[tuple[str, str, str]]) -> list[str]:
    """A name for each (operation id or "", method, path), unique, of at most `MAX_NAME` characters."""
    wanted = [_plain(key) or _from_path(method, path) for key, method, path in operations]
    # Some clients do not tell capitals apart.
    seen = Counter(name.lower() for name in wanted)
    return [
        name if len(name) <= MAX_NAME and seen[name.lower()] == 1 else shortened(name, f"{method.upper()} {path}")
        for name, (_, method, path) in zip(wanted, operations, strict=True)
    ]


def shortened(name: str, identity: str) -> str:
    """`name` cut to its length, with digits that belong to `identity` alone."""
    digits = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: MAX_NAME - _DIGITS - 1].rstrip('_-')}_{digits}"


def argument_name(name: str, place: str, taken: Iterable[str]) -> str:
    """A name for the parameter `name` in `place` (path, query, header, cookie, body) that is not in `taken`."""
    used = set(taken)
    plain = _plain(name)[:MAX_NAME] or place
    if plain not in used:
        return plain
    plain = f"{place}_{plain}"[:MAX_NAME]
    number, candidate = 2, plain
    while candidate in used:
        candidate = f"{plain[: MAX_NAME - 4]}_{number}"
        number += 1
    return candidate


def _plain(name: str) -> str:
    return _UNFIT.sub("_", name).strip("_") if _UNFIT.search(name) else name


def _from_path(method: str, path: str) -> str:
    words = [f"by_{part[1:-1]}" if part.startswith("{") else part for part in path.split("/") if part]
    return _plain("_".join((method.lower(), *words)))

"""Values in answers, goals and arguments: where a value could have come from decides what an agent must find out."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from actors.ports.tool_answers.reader import parsed

Scalar = str | int | float | bool
_MARKED = re.compile(r"\b(\w+)[:=]\s?([^\s,;:=]+[^\s,;:=.!?])")
"""`to:Oslo`, `order=A17`."""
_QUOTED = re.compile(r"\"([^\"]{1,200})\"|“([^”]{1,200})”|`([^`]{1,200})`|(?<!\w)'([^']{1,200})'(?!\w)")
_TOKEN = re.compile(r"[^\s,;:!?()\[\]{}\"'“”`]+")
_LEAVES = 256
"""Values looked at in one answer."""
_LONG = 200
_DEPTH = 12


class Leaf(NamedTuple):
    """A value within an answer."""

    path: str
    """Keys and indices joined by dots; empty for the whole."""
    value: Scalar

    @property
    def key(self) -> str:
        """The last key that is a name, lower case."""
        return next((part.lower() for part in reversed(self.path.split(".")) if not part.isdecimal()), "")


def leaves(text: str) -> list[Leaf]:
    """The scalar values of an answer: those of its JSON, or the text itself."""
    found: list[Leaf] = []
    for leaf in _walk(parsed(text), "", 0):
        found.append(leaf)
        if len(found) >= _LEAVES:
            break
    return found


def _walk(value: Any, path: str, depth: int) -> Iterator[Leaf]:
    if depth > _DEPTH:
        return
    if isinstance(value, dict):
        for key in value:
            # A key with a dot cannot be found again by its path.
            if "." not in str(key):
                yield from _walk(value[key], f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, f"{path}.{number}" if path else str(number), depth + 1)
    elif isinstance(value, str | int | float) and not (isinstance(value, str) and len(value) > _LONG):
        yield Leaf(path, value)


def telling(value: Any, key_matches: bool = False) -> bool:
    """Whether two places that hold `value` have it from each other rather than by chance."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return key_matches or abs(value) >= 10
    return isinstance(value, str) and bool(value.strip())


def mentions(text: str, value: Any) -> bool:
    """Whether `text` names `value`, as a word or words of its own."""
    wanted = as_text(value)
    if not wanted or wanted not in text:
        return False
    # Not \b: a value may begin or end with what is no letter.
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


def as_text(value: Any) -> str:
    """A scalar as it would stand in a goal; empty for what is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def named(goal: str) -> list[tuple[str, Scalar]]:
    """Values that a goal may name, the likeliest first, each with the marker before it (lower case) or empty."""
    found: dict[tuple[str, Scalar], None] = {}
    for marker, value in _MARKED.findall(goal):
        found[marker.lower(), value] = None
    for match in _QUOTED.finditer(goal):
        found["", next(filter(None, match.groups()))] = None
    words = [word.rstrip(".") for word in _TOKEN.findall(goal)]
    for word in words:
        if number := _number(word):
            found["", number] = None
    for word in words:
        if any(mark.isdigit() or mark.isupper() or mark in "_./@-" for mark in word) and len(word) > 1:
            found["", word] = None
    for word in words:
        if len(word) > 3 and word.isalpha() and word.islower():
            found["", word] = None
    return list(found)[:_LEAVES]


def _number(word: str) -> int | float | None:
    text = word.lstrip("$€£#").rstrip("%")
    try:
        return int(text) if text.isdecimal() else float(text) if re.fullmatch(r"\d+\.\d+", text) else None
    except ValueError:
        return None


def tokens(text: str) -> frozenset[str]:
    """The words of `text`, whatever the script: runs of letters and digits, and each CJK character."""
    return frozenset(
        re.findall(
            r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+", text.casefold()
        )
    )


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Likeness of two sets of words, 0 to 1; two empty ones are equal."""
    return len(one & other) / len(one | other) if one or other else 1.0


def differences(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """What changed from one state to another: paths with their new values, 32 at most."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: dict[str, Any] = {}
        for key in [*after, *(key for key in before if key not in after)]:
            if before.get(key) != after.get(key):
                found |= differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        return dict(list(found.items())[:32])
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs: Sequence[tuple[Any, Any]] = list(zip(before, after, strict=True))
        found = {}
        for number, (old, new) in enumerate(pairs):
            if old != new:
                found |= differences(old, new, f"{path}.{number}" if path else str(number))
        return dict(list(found.items())[:32])
    return {path: after}

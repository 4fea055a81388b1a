"""Words of a text and of a request, as search compares them: names in parts, endings off, small words out."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_SMALL_WORDS = (
    "a about all also am an and any are as at be been but by can could did do does doing done for from get give gave "
    "had has have he her here him his how i if in into is it its just let like m me mine my no not now of off on one "
    "or our out over please put re s she should so some t than that the their them then there these they this those "
    "to too up us ve want was we were what when where which who whom whose why will with would yes you your"
)
_SMALL = frozenset(_SMALL_WORDS.split())


def words(text: str) -> list[str]:
    """The words of `text` as they are compared, in order, without small words unless there are no others.

    `showOpenOrders`, `show_open_orders` and "Shows open orders" give the same. Endings go by the first step of Porter's
    algorithm (1980): plurals, -ed and -ing; the later steps also join what is no form of one word.
    """
    found = parts(text)
    telling = [word for word in found if word not in _SMALL]
    return [stem(word) for word in telling or found]


def parts(text: str) -> list[str]:
    """The words of `text` in lower case, in order, names in parts."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        inside = [word] if word.islower() or not word.isascii() else _PART.findall(word) or [word]
        found += [part.casefold() for part in inside]
    return found


def stem(word: str) -> str:
    """`word` in lower case without the ending of a plural, -ed or -ing."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    for ending in ("ed", "ing"):
        if word.endswith(ending) and not word.endswith("eed"):
            base = word[: -len(ending)]
            if len(base) > 1 and _VOWEL.search(base):
                word = _mended(base)
            break
    # "cancelled" and "cancel", "reply" and "replies", "change" and "changing" meet.
    if len(word) > 2 and word.endswith("y") and word[-2] not in "aeiou":
        word = f"{word[:-1]}i"
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("ll") else word


def _singular(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    if word.endswith(("ches", "shes", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and word[-2] not in "su" else word


def _mended(base: str) -> str:
    if base.endswith(("at", "bl", "iz")):
        return f"{base}e"
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return base

"""Names that are made at run time, of customers and of tools: nobody has heard one before."""

import random
import string
from typing import Literal

NameKind = Literal["syllables", "letters", "pair"]

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def made_name(rng: random.Random, syllables: int) -> str:
    """A name such as "zokari"."""
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(syllables))


def made_tool_name(rng: random.Random, kind: NameKind | None = None) -> str:
    """A tool name.

    Args:
        kind: spoken syllables, any letters, or two of the former with a joint; None for any.
    """
    kind = kind or rng.choice(("syllables", "letters", "pair"))
    if kind == "letters":
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(4, 9)))
    if kind == "syllables":
        return made_name(rng, rng.randint(2, 4))
    first, second = made_name(rng, rng.randint(1, 2)), made_name(rng, rng.randint(1, 3))
    joint = rng.choice("_._C")
    return first + second.capitalize() if joint == "C" else first + joint + second

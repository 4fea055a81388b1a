"""Names that are made at run time, of customers and of tools: nobody has heard one before."""

import random

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def made_name(rng: random.Random, syllables: int) -> str:
    """A name such as "zokari"."""
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(syllables))

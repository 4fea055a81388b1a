"""Names of tools that nobody has heard before: spoken syllables, any letters, or two of the former with a joint."""

import random
import string

from adapters.environments.made_names import made_name


def made_tool_name(rng: random.Random) -> str:
    kind = rng.choice(("syllables", "letters", "pair"))
    if kind == "letters":
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(4, 9)))
    if kind == "syllables":
        return made_name(rng, rng.randint(2, 4))
    first, second = made_name(rng, rng.randint(1, 2)), made_name(rng, rng.randint(1, 3))
    joint = rng.choice("_._C")
    return first + second.capitalize() if joint == "C" else first + joint + second

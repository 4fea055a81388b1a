"""The entities in a goal, and another goal's put in their place.

What `actors.kinds.clusters.template_of` masks is what differs between goals of one kind: marked values (`to:Oslo`),
quotations, words with digits, names. A goal is carried over to another world by giving each of its entities the value
that an entity of the same sort has there.
"""

import re
from collections.abc import Sequence

import msgspec

_SPLIT = re.compile(
    r"(?P<marked>\b(?P<marker>\w+):(?P<value>\S*[^\s.,;!?)]))"
    r"|(?P<quoted>\"[^\"]*\"|“[^”]*”|`[^`]*`|(?<!\w)'[^']*'(?!\w))"
    r"|(?P<identifier>\b\w*\d[\w-]*(?:\.[\w-]+)*)"
    r"|(?P<name>(?<![a-z]{3}[.!?]\s)(?<!^)\b[A-Z][\w'-]*)"
)


class Entity(msgspec.Struct, frozen=True):
    """One entity of a goal."""

    sort: str
    """`marked:to`, `quoted`, `identifier` or `name`: only entities of one sort can stand for each other."""
    value: str
    start: int
    end: int
    """Where the value stands in the goal, half-open."""


def entities(goal: str) -> list[Entity]:
    """The entities of `goal`, in its order."""
    found: list[Entity] = []
    for match in _SPLIT.finditer(goal):
        kind = match.lastgroup if match.lastgroup in ("quoted", "identifier", "name") else "marked"
        if match["marked"] is not None:
            found.append(Entity(f"marked:{match['marker']}", match["value"], *match.span("value")))
        else:
            found.append(Entity(kind, match.group(), *match.span()))
    return found


def carried_over(goal: str, there: Sequence[Entity]) -> str | None:
    """`goal` with its entities replaced by those of another world; None if that has too few of a sort.

    The first entity of a sort takes the first of that sort there, and so on; the same value takes the same one again.
    """
    free = list(there)
    given: dict[tuple[str, str], str] = {}
    made, at = "", 0
    for entity in entities(goal):
        key = (entity.sort, entity.value)
        if key not in given:
            fitting = next((one for one in free if one.sort == entity.sort), None)
            if fitting is None:
                return None
            free = [one for one in free if (one.sort, one.value) != (fitting.sort, fitting.value)]
            given[key] = fitting.value
        made += goal[at : entity.start] + given[key]
        at = entity.end
    return made + goal[at:]

"""Which values are worth trying for an argument: results under its name, what the goal names, what has worked, more."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from actors.ports.environments import Profile
from actors.tasks.questioner.model import EnvironmentModel
from actors.tasks.questioner.settings import Preferences
from actors.tasks.questioner.values import Leaf, mentions, named

_CANDIDATES = 48
_PLAIN: dict[str, tuple[Any, ...]] = {
    "string": ("1", "test"),
    "integer": (1, 2, 10),
    "number": (1, 10.0),
    "boolean": (True, False),
    "array": ([],),
    "object": ({},),
}


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a function tool."""

    name: str
    type: str = "string"
    required: bool = False
    enum: tuple[Any, ...] = ()
    items: str = "string"
    """Type of a list's items."""
    default: Any = None


def function_of(tool: dict[str, Any]) -> tuple[str, str, list[Parameter]]:
    """Name, description and parameters of a tool in OpenAI's form, whatever is wrong with its schema."""
    function = tool.get("function")
    function = function if isinstance(function, dict) else {}
    schema = function.get("parameters")
    schema = schema if isinstance(schema, dict) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    properties = schema.get("properties")
    found: list[Parameter] = []
    for name, content in properties.items() if isinstance(properties, dict) else ():
        content = content if isinstance(content, dict) else {}
        enum, items = content.get("enum"), content.get("items")
        found.append(
            Parameter(
                name=str(name),
                type=_type(content),
                required=name in required,
                enum=tuple(enum) if isinstance(enum, list) else (),
                items=_type(items if isinstance(items, dict) else {}),
                default=content.get("default"),
            )
        )
    return str(function.get("name", "")), str(function.get("description", "")), found


def _type(content: dict[str, Any]) -> str:
    kind = content.get("type", "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "string")
    return kind if kind in _PLAIN else "string"


class Surroundings:
    """What an agent in a walk has been told so far."""

    def __init__(self, goal: str) -> None:
        self.goal = goal
        self.named = named(goal)
        self.results: list[tuple[str, Leaf]] = []
        """Tool and value, oldest first."""


class Values:
    """Draws values.

    Args:
        profile: what the environment says of itself.
    """

    def __init__(self, model: EnvironmentModel, profile: Profile, prefer: Preferences) -> None:
        self._model, self._profile, self._prefer = model, profile, prefer

    def draw(self, tool: str, parameter: Parameter, around: Surroundings, rng: random.Random) -> tuple[Any, bool]:
        """A value for `parameter`, and whether it came from a result or the goal."""
        drawn: tuple[Any, bool] = (None, False)
        # Lazily: most draws are among the first, and looking at all values of all tools is what a walk would cost.
        at = min(int(rng.expovariate(0.9)), _CANDIDATES)
        for number, candidate in enumerate(self._candidates(tool, parameter, around, rng)):
            drawn = candidate
            if number == at:
                break
        return drawn

    def _candidates(
        self, tool: str, parameter: Parameter, around: Surroundings, rng: random.Random
    ) -> Iterator[tuple[Any, bool]]:
        """Values worth trying, the likeliest first, each with whether it is a result or named by the goal."""
        seen: set[str] = set()
        for value in self._fitting(parameter, self._flowing(tool, parameter, around), seen):
            yield value, True
        for value in self._fitting(parameter, self._named(parameter, around), seen):
            yield value, True
        if parameter.enum:
            enum = list(parameter.enum)
            rng.shuffle(enum)
            yield from ((value, True) for value in self._fitting(parameter, enum, seen))
            return
        pool = [*self._profile.entities.get(parameter.name, ()), *self._model.values(parameter.name)]
        rng.shuffle(pool)
        others = (
            pool,
            (value for _, value in around.named),
            (leaf.value for _, leaf in reversed(around.results)),
            () if parameter.default is None else (parameter.default,),
            _PLAIN[parameter.type],
        )
        for values in others:
            yield from ((value, False) for value in self._fitting(parameter, values, seen))

    def entities(self, argument: str, original: Any, around: Surroundings, rng: random.Random) -> tuple[list[Any], int]:
        """Values that may stand for `original`, which was given for `argument`, and how many the goal names."""
        known = [*self._profile.entities.get(argument, ()), *self._model.values(argument)]
        parameter = Parameter(argument, _kind(original))
        seen: set[str] = set()
        found = [
            *self._fitting(parameter, (value for value in known if mentions(around.goal, value)), seen),
            *self._fitting(parameter, (value for key, value in around.named if key == argument.lower()), seen),
        ]
        near = len(found)
        rng.shuffle(known)
        found += self._fitting(parameter, [*known, original], seen)
        return found[:_CANDIDATES], near

    def _flowing(self, tool: str, parameter: Parameter, around: Surroundings) -> Iterator[Any]:
        entry = self._model.tools.get(tool)
        flows = entry.flows.get(parameter.name, {}) if entry is not None else {}
        for origin, leaf in reversed(around.results):
            if leaf.key == parameter.name.lower() or f"{origin}:{leaf.path}" in flows:
                yield leaf.value

    def _named(self, parameter: Parameter, around: Surroundings) -> Iterator[Any]:
        for key, value in around.named:
            if key == parameter.name.lower():
                yield value
        known = [*self._profile.entities.get(parameter.name, ()), *self._model.values(parameter.name)]
        told = [leaf.value for _, leaf in reversed(around.results) if isinstance(leaf.value, str) and " " in leaf.value]
        for text in (*told, around.goal):
            yield from (value for value in known if mentions(text, value))

    def _fitting(self, parameter: Parameter, values: Iterable[Any], seen: set[str]) -> Iterator[Any]:
        """Those of `values` that the parameter takes and the preferences allow, each once."""
        for value in values:
            fitted = _fitted(parameter, value)
            if fitted is None or (key := repr(fitted)) in seen or len(seen) >= _CANDIDATES:
                continue
            seen.add(key)
            if self.wanted(parameter.name, fitted):
                yield fitted

    def wanted(self, argument: str, value: Any) -> bool:
        """Whether the preferences allow `value` for `argument`."""
        use, avoid = self._prefer.use.get(argument, ()), self._prefer.avoid.get(argument, ())
        return (not use or str(value) in use) and str(value) not in avoid


def _kind(value: Any) -> str:
    kinds: Sequence[tuple[type, str]] = (
        (bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"),
    )  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), "string")


def _fitted(parameter: Parameter, value: Any) -> Any:
    """`value` as the parameter's type has it; None if it cannot be."""
    if parameter.enum and value not in parameter.enum:
        return None
    kind = parameter.type
    if kind == "array":
        if isinstance(value, list):
            return value
        item = _fitted(Parameter("", parameter.items), value) if parameter.items != "array" else None
        return None if item is None else [item]
    if kind == "object":
        return value if isinstance(value, dict) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind == "string":
        return value if isinstance(value, str) else None
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    return value if kind == "number" else int(value) if value == int(value) else None

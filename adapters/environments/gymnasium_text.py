"""`Codec`: a Gymnasium environment's actions as function tools, and its observations as text.

MiniGrid's observation is a partial view: `image` holds for each of 7 x 7 cells a kind, a colour and a state, the agent
stands in the middle of the bottom row and looks up; the cell it stands on shows what it carries (Chevalier-Boisvert et
al., "Minigrid & Miniworld", NeurIPS 2023). It is told as BabyAI's papers tell it to language models: what is seen, how
many steps ahead and to which side. Everything else is told as it is: text as text, numbers as JSON.
"""

import enum
import json
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import msgspec

MAX_CHARACTERS = 4000
"""Of an observation that is no text of its own."""
_KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_DOORS = ("open", "closed", "locked")
_PLAIN = frozenset({"unseen", "empty", "wall", "floor", "agent"})
"""Kinds that are not told one by one."""
_COLOURED = frozenset({"door", "key", "ball", "box"})
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MEANINGS = {
    "turn_left": "Turn left by 90 degrees.",
    "turn_right": "Turn right by 90 degrees.",
    "forward": "Go one step ahead.",
    "pickup": "Pick up the object right ahead.",
    "drop": "Put down what is carried, right ahead.",
    "toggle": "Open or close the door or box right ahead; a locked door needs its key carried.",
    "done": "Do nothing.",
}
_MINIGRID = {"left": "turn_left", "right": "turn_right"}


class Codec:
    """How one environment's actions are called and its observations are told.

    Args:
        environment: as made; discrete and text action spaces are known.
        names: of the actions, in their order; None: as the environment names them (an enum `actions`, as MiniGrid has
            it), else `action_0` and so on.

    Raises:
        ValueError: another action space, or not as many names as actions.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], names: tuple[str, ...] | None = None) -> None:
        space = environment.action_space
        self._text = isinstance(space, gymnasium.spaces.Text)
        self._actions: dict[str, int] = {}
        if isinstance(space, gymnasium.spaces.Discrete):
            found = tuple(names) if names is not None else _names(environment, int(space.n))
            if len(set(found)) != int(space.n):
                raise ValueError(f"{len(set(found))} names of actions are given, the environment has {space.n}")
            self._actions = {name: int(space.start) + number for number, name in enumerate(found)}
        elif not self._text:
            raise ValueError(f"actions are {type(space).__name__}; only Discrete and Text can be made tools of")

    def tools(self) -> list[dict[str, Any]]:
        """One function tool an action, without parameters; one with `text` for a text action space."""
        if self._text:
            return [_tool("act", "Say or do this.", {"text": {"type": "string"}})]
        return [_tool(name, _MEANINGS.get(name, f"Take the action {name}."), {}) for name in self._actions]

    def action(self, name: str, arguments: str) -> int | str:
        """What a call stands for.

        Raises:
            ValueError: no such tool, or arguments that it does not take; in words for the agent.
        """
        try:
            given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise ValueError("bad arguments") from None
        if self._text:
            if name != "act":
                raise ValueError("no tool")
            if set(given) != {"text"} or not isinstance(given["text"], str):
                raise ValueError("bad arguments")
            return given["text"]
        if name not in self._actions:
            raise ValueError("no tool")
        if given:
            raise ValueError("bad arguments")
        return self._actions[name]

    def told(self, observation: Any) -> str:
        if isinstance(observation, str):
            return observation
        if isinstance(observation, Mapping) and {"image", "mission"} <= set(observation):
            return grid(observation["image"])
        return json.dumps(observation, default=_plain)[:MAX_CHARACTERS]


def mission(observation: Any) -> str:
    return str(observation["mission"]) if isinstance(observation, Mapping) and "mission" in observation else ""


def grid(image: Any) -> str:
    """MiniGrid's partial view, uint8 (width, height, 3), in words: nearest things first."""
    width, height = image.shape[:2]
    middle, bottom = width // 2, height - 1
    seen: list[tuple[int, int, str]] = []
    for x in range(width):
        for y in range(height):
            ahead, aside = bottom - y, x - middle
            name = _thing(image[x, y])
            if name and (ahead or aside):
                where = [f"{ahead} ahead"] if ahead else []
                where += [f"{abs(aside)} {'left' if aside < 0 else 'right'}"] if aside else []
                seen.append((ahead + abs(aside), aside, f"{name} {' '.join(where)}"))
    wall = next((n for n in range(1, height) if _KINDS[int(image[middle, bottom - n, 0])] == "wall"), 0)
    words = [text for _, _, text in sorted(seen)] + ([f"wall {wall} ahead"] if wall else [])
    carried = _thing(image[middle, bottom])
    return f"You see: {'; '.join(words) or 'nothing'}." + (f" You carry: {carried}." if carried else "")


def _thing(cell: Any) -> str:
    kind, colour, state = (int(number) for number in cell)
    name = _KINDS[kind] if kind < len(_KINDS) else f"thing {kind}"
    if name in _PLAIN:
        return ""
    words = [_DOORS[state]] if name == "door" and state < len(_DOORS) else []
    if name in _COLOURED and colour < len(_COLOURS):
        words.append(_COLOURS[colour])
    return " ".join([*words, name])


def _names(environment: gymnasium.Env[Any, Any], count: int) -> tuple[str, ...]:
    actions = getattr(environment.unwrapped, "actions", None)
    if isinstance(actions, type) and issubclass(actions, enum.IntEnum) and len(actions) == count:
        return tuple(_MINIGRID.get(one.name, _NOT_A_NAME.sub("_", one.name)) for one in sorted(actions))
    return tuple(f"action_{number}" for number in range(count))


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _plain(value: Any) -> Any:
    """numpy's arrays and scalars as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)

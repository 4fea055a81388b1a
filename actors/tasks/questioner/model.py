"""`EnvironmentModel`: what probing has found out about an environment. JSON-able, mergeable, bounded."""

from typing import Any, Literal

import msgspec

_VALUES, _EXAMPLES, _FLOWS, _TOOLS = 64, 3, 16, 4096


class ToolModel(msgspec.Struct, kw_only=True):
    """One tool, as it behaved."""

    description: str = ""
    calls: int = 0
    refused: int = 0
    writes: int = 0
    """Calls after which the state was another."""
    closes: bool = False
    """It ends the episode, alone in a fresh instance."""
    results: dict[str, list[Any]] = {}
    """Attributes: paths in its answers (list indices as *) with some values."""
    needs: dict[str, int] = {}
    """Preconditions: tools without which a call was refused that works after them, with how often that was seen."""
    flows: dict[str, dict[str, int]] = {}
    """Argument to "tool:path" whose result was used for it and worked."""

    @property
    def operation(self) -> Literal["read", "write", "unknown"]:
        """What it does, by what it did."""
        if self.writes:
            return "write"
        return "read" if self.calls > self.refused else "unknown"


class EnvironmentModel(msgspec.Struct, kw_only=True):
    """What an environment seems to be."""

    environment: str = ""
    tools: dict[str, ToolModel] = {}
    entities: dict[str, dict[str, int]] = {}
    """Argument name to values (as JSON) that worked and came from no result, with how often they did."""

    def tool(self, name: str, description: str = "") -> ToolModel:
        """The entry of a tool, made if there is none."""
        found = self.tools.get(name)
        if found is None:
            found = ToolModel(description=description)
            if len(self.tools) < _TOOLS:
                self.tools[name] = found
        return found

    def closing(self) -> list[str]:
        """Tools that end an episode."""
        return [name for name, tool in self.tools.items() if tool.closes]

    def worked(self, argument: str, value: Any) -> None:
        """`value` was taken for `argument`."""
        _count(self.entities.setdefault(argument, {}), _json(value), _VALUES)

    def values(self, argument: str) -> list[Any]:
        """Values that worked for `argument`, the most frequent first."""
        known = self.entities.get(argument, {})
        return [msgspec.json.decode(value) for value in sorted(known, key=lambda value: (-known[value], value))]

    def saw(self, tool: str, path: str, value: Any) -> None:
        """An answer of `tool` had `value` at `path`."""
        pattern = ".".join("*" if part.isdecimal() else part for part in path.split("."))
        results = self.tool(tool).results
        if pattern not in results and len(results) >= _VALUES:
            return
        examples = results.setdefault(pattern, [])
        if value not in examples and len(examples) < _EXAMPLES:
            examples.append(value)

    def flowed(self, tool: str, argument: str, origin: str) -> None:
        """`argument` of `tool` worked with a value out of `origin`, "tool:path"."""
        _count(self.tool(tool).flows.setdefault(argument, {}), origin, _FLOWS)

    def needed(self, tool: str, before: str) -> None:
        """`tool` was refused without `before`, and not with it."""
        _count(self.tool(tool).needs, before, _FLOWS)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _count(counts: dict[str, int], key: str, most: int) -> None:
    """Add to a count; a new key beyond `most` is left out: what is frequent comes early."""
    if key in counts or len(counts) < most:
        counts[key] = counts.get(key, 0) + 1

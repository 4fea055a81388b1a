"""How the desk's tools are called, and the drift switch that changes it in mid-run.

Production agents and the sandbox read the same drift file, so their desks drift together, as two deployments of one
changed service would.
"""

from typing import Any

import msgspec

from adapters.environments.drift_file import DriftRecord, tool

PARAMETERS: dict[str, tuple[str, ...]] = {
    "find_person": ("name",),
    "search_flight": ("to",),
    "quote": ("fid",),
    "book": ("fid", "pid"),
    "list_orders": ("pid",),
    "check_policy": ("oid",),
    "cancel": ("oid",),
    "weather": ("city",),
    "next_ticket": (),
    "finish": ("answer",),
}
"""The tools by their role, which is also their name before any drift, with their parameters."""
PRECONDITION_OF = {"book": "quote", "cancel": "check_policy"}
"""Which role is, or can become, what must be called before another."""


class Drift(DriftRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the desk: `Drift(rename={"book": "buy"}, precondition={"book": "hold"})`."""

    rename: dict[str, str] = {}
    """Role to new tool name."""
    precondition: dict[str, str] = {}
    """Role ("book" or "cancel") to the name of the tool that must now be called before it."""

    def __post_init__(self) -> None:
        for role in self.rename:
            if role not in PARAMETERS:
                raise ValueError(f"drift: there is no tool {role!r} to rename; tools: {', '.join(PARAMETERS)}")
        for role in self.precondition:
            if role not in PRECONDITION_OF:
                raise ValueError(f"drift: {role!r} can have no precondition; only {', '.join(PRECONDITION_OF)} can")
        names = list(Variant.of(self).names.values())
        if len(set(names)) < len(names):
            raise ValueError("drift: two tools would have the same name")


class Variant(msgspec.Struct, frozen=True):
    """The desk's tools as they are called now."""

    names: dict[str, str]
    """Role to tool name, for every role, in the order of the tool list."""
    book_needs_quote: bool = False
    """Whether "book" is refused until the tool in the role "quote" was called; "cancel" always has its precondition."""

    @classmethod
    def of(cls, drift: Drift) -> "Variant":
        """The desk under `drift`."""
        names = {role: drift.rename.get(role, role) for role in PARAMETERS}
        for role, name in drift.precondition.items():
            names[PRECONDITION_OF[role]] = name
        return cls(names, "book" in drift.precondition)

    def role(self, name: str) -> str | None:
        """Which role the tool called `name` has; None if there is none."""
        return next((role for role, called in self.names.items() if called == name), None)

    def tools(self) -> list[dict[str, Any]]:
        return [tool(name, PARAMETERS[role]) for role, name in self.names.items()]


BASE = Variant.of(Drift())
"""The desk without drift."""

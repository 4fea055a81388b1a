"""Adapters inside of adapters: a panel or an ensemble names its members as `judge` and `sandbox.grader` name one."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from actors.ports.errors import AdapterNotSetUp


def adapter_named(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """The adapter registered as `KIND.NAME`, made with `options`.

    Raises:
        AdapterNotSetUp: there is none, or it does not take these options.
    """
    found = {
        one.name.partition(".")[2]: one
        for one in entry_points(group="evolved.adapters")
        if one.name.startswith(f"{kind}.")
    }
    if name not in found:
        raise AdapterNotSetUp(f"{kind} {name!r} is not installed; there are: {', '.join(sorted(found)) or 'none'}")
    try:
        return found[name].load()(**options)
    except TypeError as error:
        raise AdapterNotSetUp(f"{kind} {name!r}: {error}; check its options") from error

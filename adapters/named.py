"""Adapters by name. They register by entry point (`evolved.adapters`, names such as `environment.travel`), ours too."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from actors.ports.errors import AdapterNotSetUp

GROUP = "evolved.adapters"


def installed(kind: str) -> dict[str, EntryPoint]:
    """The adapters of `kind`, by name; nothing is loaded for it."""
    return {
        point.name.partition(".")[2]: point for point in entry_points(group=GROUP) if point.name.startswith(f"{kind}.")
    }


def adapter_named(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """The adapter registered as `KIND.NAME`, made with `options`, for one that has others inside: a panel names its
    members as `judge` names one.

    Raises:
        AdapterNotSetUp: there is none, or it does not take these options.
    """
    found = installed(kind)
    if name not in found:
        raise AdapterNotSetUp(f"{kind} {name!r} is not installed; there are: {', '.join(sorted(found)) or 'none'}")
    try:
        return found[name].load()(**options)
    except TypeError as error:
        raise AdapterNotSetUp(f"{kind} {name!r}: {error}; check its options") from error

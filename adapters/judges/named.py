"""Judges inside of judges: the members of a panel and what evidence overrides are named as `[judge]` names one."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from actors.ports.errors import JudgeNotSetUp
from actors.ports.judges import Judge

GROUP = "evolved.adapters"


def judge_named(name: str, options: Mapping[str, Any]) -> Judge:
    """The judge registered as `judge.NAME`, made with `options`.

    Raises:
        JudgeNotSetUp: there is none, or it does not take these options.
    """
    found = {point.name: point for point in entry_points(group=GROUP) if point.name.startswith("judge.")}
    point = found.get(f"judge.{name}")
    if point is None:
        installed = ", ".join(sorted(key.partition(".")[2] for key in found)) or "none"
        raise JudgeNotSetUp(f"judge {name!r} is not installed; there are: {installed}")
    try:
        return point.load()(**options)
    except TypeError as error:
        raise JudgeNotSetUp(f"judge {name!r}: {error}; check its options") from error

"""The settings themselves: which of them nothing reads, and what is left of a file that is partly wrong."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.doctor.base import Finding, fault
from daemon.errors import ConfigError
from daemon.settings import reading
from daemon.settings.reading import load
from daemon.settings.tables import Config


def readable(path: Path | None, assignments: Sequence[str]) -> tuple[Config, list[Finding]]:
    """The configuration without what nothing knows, and a finding for each such key.

    A file that cannot be read at all leaves the defaults: what they say of ports and paths is better than nothing.
    """
    source = str(path) if path is not None else "--set"
    found: list[Finding] = []
    try:
        return load(path, assignments), found
    except ConfigError as error:
        first = str(error)
    try:
        table = reading.whole(path, assignments)
        known = _known(table, Config, (), found, source)
        return reading.checked(known, source), found or [fault(first, f"change it in {source}")]
    except ConfigError as error:
        return load(None), [*found, fault(str(error), f"change it in {source}; `evolved config` checks it")]


def _known(
    table: Mapping[str, Any], kind: type[msgspec.Struct], path: tuple[str, ...], found: list[Finding], source: str
) -> dict[str, Any]:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    kept: dict[str, Any] = {}
    for key, value in table.items():
        inner = fields.get(key)
        name = ".".join((*path, key))
        if inner is None:
            near = difflib.get_close_matches(key, fields, 1, 0.5)
            meant = f"write {'.'.join((*path, near[0]))}" if near else "take it out"
            found.append(
                fault(f"{source}: no setting {name}", f"{meant}; tap and daemon do not start with it in {source}")
            )
        elif isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            kept[key] = _known(value, inner, (*path, key), found, source)
        else:
            kept[key] = value
    return kept

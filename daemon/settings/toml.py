"""TOML to settings: every key is known or an error that names the nearest known one.

msgspec checks types; this module adds what a person needs from an error: which file, which key, what was meant.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from daemon.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


def read(path: Path) -> dict[str, Any]:
    """The table in the file at `path`.

    Raises:
        ConfigError: no such file, or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give another file with --config") from error
    except (ValueError, RecursionError) as error:
        # Also: bytes that are not UTF-8, a number with thousands of digits, brackets nested too deep.
        raise ConfigError(f"{path} is no TOML: {error}") from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over` laid over it, table by table."""
    out = dict(base)
    for key, value in over.items():
        inner = out.get(key)
        out[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return out


def assignment(text: str) -> dict[str, Any]:
    """The table for one `section.key=value` of the command line; a value that is no TOML is taken as text.

    Raises:
        ConfigError: no `=` in it, or no key.
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set {text!r}: write section.key=value, for example --set train.lr=1e-5")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value
    table: Any = parsed
    for part in reversed(key.strip().split(".")):
        table = {part: table}
    return table


def convert(table: Mapping[str, Any], kind: type[T], source: str, path: tuple[str, ...] = ()) -> T:
    """`table`, which stands at `path`, as settings of `kind`.

    Raises:
        ConfigError: names `source`, the key, and the nearest known key or the type that was expected.
    """
    _known(table, kind, source, path)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at ")
        key = ".".join((*path, *filter(None, [re.sub(r"^`\$\.?|`$", "", where)]))) or "(top level)"
        raise ConfigError(f"{source}: {key}: {text[0].lower()}{text[1:]}") from error


def _known(table: Mapping[str, Any], kind: type[msgspec.Struct], source: str, path: tuple[str, ...]) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            name = ".".join((*path, key))
            near = difflib.get_close_matches(key, fields, 1, 0.5)
            meant = (
                f"did you mean {'.'.join((*path, near[0]))}?" if near else f"known here: {', '.join(sorted(fields))}"
            )
            raise ConfigError(f"{source}: unknown setting {name}; {meant}")
        inner, inside = fields[key], [((*path, key), value)]
        if isinstance(value, list):
            inner, inside = next(iter(get_args(inner)), None), [((*path, key), one) for one in value]
        elif isinstance(value, Mapping) and get_origin(inner) is dict:
            inner, inside = get_args(inner)[1], [((*path, key, *filter(None, [name])), value[name]) for name in value]
        for where, one in inside:
            if isinstance(one, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                _known(one, inner, source, where)

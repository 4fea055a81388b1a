"""The configuration as a page to read, docs/configuration.md: `evolved config --reference --markdown`.

A section for each table of settings, a row for each setting: its type, its default, what it means. The text is the
settings' own docstrings, as in `daemon.settings.reference`, so neither form can say something else.
"""

import inspect
import re
import types
import typing
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from daemon.settings.config import Config
from daemon.settings.reference import field_texts

_HEAD = """\
# Configuration

Every setting, with its default. A file in TOML has what you change; the rest keeps its default. It is named by
`--config FILE`, or once for all commands by the environment's `EVOLVED_CONFIG`; `--set section.key=value` overrides one
setting. An unknown key is an error that names the nearest known one.

```sh
evolved config                                # checks the file and prints the whole configuration
evolved config --reference > reference.toml   # all of this as a commented file
```

This page is made from the settings themselves: `evolved config --reference --markdown > docs/configuration.md`.

"""
_NAMES = {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Any": "anything"}


def reference_page(config: Config | None = None) -> str:
    """The page, in Markdown."""
    sections = list(_sections(config or Config(), ()))
    named = [title for title, _ in sections if title.count(".") == 0 and title]
    contents = " · ".join(f"[{title}](#{title})" for title in named)
    body = "".join(f"\n## {title}\n\n{text}" if title else f"\n{text}" for title, text in sections)
    return f"{_HEAD}{contents}\n{body}"


def _sections(value: msgspec.Struct, path: tuple[str, ...], about: str = "") -> typing.Iterator[tuple[str, str]]:
    """Title and text of each table, outer ones first."""
    kind = type(value)
    texts = field_texts(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    rows: list[str] = []
    inner: list[tuple[msgspec.Struct, tuple[str, ...], str]] = []
    for field in msgspec.structs.fields(kind):
        item, text = getattr(value, field.name), texts.get(field.name, "")
        if isinstance(item, msgspec.Struct):
            inner.append((item, (*path, field.name), text or _summary(item)))
        else:
            cells = (f"`{field.name}`", _type(hints[field.name]), _default(item), text)
            rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |\n")
    if rows or about:
        table = f"| setting | type | default | |\n|---|---|---|---|\n{''.join(rows)}" if rows else ""
        yield ".".join(path), (f"{about}\n\n" if about else "") + table
    for item, name, text in inner:
        yield from _sections(item, name, text)


def _summary(value: msgspec.Struct) -> str:
    return (inspect.getdoc(type(value)) or "").partition("\n")[0]


def _type(hint: Any) -> str:
    """A type as a person says it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_type(inner[0]), [one for one in inner[1:] if isinstance(one, msgspec.Meta)])
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in inner if one is not type(None))
    if origin in (tuple, list):
        return f"list of {_type(inner[0])}" if inner else "list"
    if origin is dict or hint is dict:
        return "table"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(hint))
    return _NAMES.get(getattr(hint, "__name__", str(hint)), "text")


def _bounded(name: str, bounds: list[msgspec.Meta]) -> str:
    said = [
        f"{word} {limit:g}"
        for one in bounds
        for word, limit in (("≥", one.ge), (">", one.gt), ("≤", one.le), ("<", one.lt))
        if limit is not None
    ]
    return " ".join((name, ", ".join(said))).strip()


def _default(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    if plain is None:
        return "not set"
    return f"`{msgspec.json.encode(plain).decode()}`"


def _cell(text: str) -> str:
    # A bar ends a cell and a tag would be hidden, wherever they stand.
    return re.sub(r"<(?=\w)", "&lt;", text.replace("|", "\\|"))

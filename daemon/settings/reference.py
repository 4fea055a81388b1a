"""The commented reference configuration, made from the settings themselves: `evolved config --reference`.

The text behind a key is the docstring under the field that it sets, so neither can go stale; a test compares the
repository's config.toml with what this module says.
"""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

import msgspec
import tomli_w

from daemon.settings.config import Config

HEAD = """\
# Reference configuration of evolved: every key with its default. Copy it, keep what you change.
# An unknown key is an error that names the nearest known one. `evolved config --config FILE` checks a file.
# Made by `evolved config --reference`; edit the settings' docstrings, not this file.
"""
WIDTH = 118


def reference(config: Config | None = None) -> str:
    """The reference as TOML."""
    return HEAD + _table(config or Config(), ())


@cache
def field_texts(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring under each field of `kind`, inherited ones included, as one line."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, following in zip(definition.body, [*definition.body[1:], None], strict=True):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = " ".join(str(following.value.value).split())
            texts[statement.target.id] = text
    return texts


def _table(value: msgspec.Struct, path: tuple[str, ...]) -> str:
    kind = type(value)
    texts = field_texts(kind)
    lines: list[str] = []
    tables: list[str] = []
    for field in msgspec.structs.fields(kind):
        item = getattr(value, field.name)
        if isinstance(item, msgspec.Struct):
            title = ".".join((*path, field.name))
            summary = (inspect.getdoc(type(item)) or "").partition("\n")[0]
            about = texts.get(field.name) or summary
            tables.append(f"\n{_comment(about)}[{title}]\n{_table(item, (*path, field.name))}")
        else:
            lines.append(f"{_comment(texts.get(field.name, ''))}{_assignment(field.name, item)}")
    return "".join(lines) + "".join(tables)


def _assignment(name: str, value: Any) -> str:
    if value is None:
        return f"# {name} is not set by default\n"
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict) and not plain:
        return f"{name} = {{}}\n"
    if isinstance(plain, list):
        one = f"{name} = [{', '.join(tomli_w.dumps({'x': item}).strip()[4:] for item in plain)}]\n"
        return one if len(one) <= WIDTH else tomli_w.dumps({name: plain})
    return tomli_w.dumps({name: plain})


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, WIDTH - 2))

"""Column types that hold, find and sort the same in SQLite and in PostgreSQL.

PostgreSQL takes no NUL in text, sorts text as a language does, and has integers of 32 bits. Here NUL is written in two
other characters and read back as itself, text is compared byte by byte, and integers have 64 bits.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, String, Text, TypeDecorator
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

_NUL, _MARK = "\0", "\ue000"
"""What cannot be written, and the character (of Unicode's private use) that begins what is written for it."""
_NUL_WRITTEN, _MARK_WRITTEN = _MARK + "0", _MARK + "1"


def written(value: str | None) -> str | None:
    """`value` as PostgreSQL takes it; no two texts become the same."""
    if value is None or (_NUL not in value and _MARK not in value):
        return value
    return value.replace(_MARK, _MARK_WRITTEN).replace(_NUL, _NUL_WRITTEN)


def read(value: str | None) -> str | None:
    """What `written` was given."""
    if value is None or _MARK not in value:
        return value
    return value.replace(_NUL_WRITTEN, _NUL).replace(_MARK_WRITTEN, _MARK)


class Characters(TypeDecorator[str]):
    """Any text, compared byte by byte."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TEXT(collation="C"))
        return super().load_dialect_impl(dialect)

    # Not `process_bind_param`: SQLite would pay a call for every value, for nothing.

    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], str | None] | None:
        return written if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], str | None] | None:
        return read if dialect.name == "postgresql" else None


class LongCharacters(Characters):
    """The same; the name is SQLite's for what nobody looks for."""

    impl = Text
    cache_ok = True


def whole() -> TypeEngine[int]:
    """64 bits; SQLite counts rows only in what is called INTEGER, whose numbers have as many."""
    return BigInteger().with_variant(Integer(), "sqlite")

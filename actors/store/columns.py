"""Column types that hold, find and sort the same in SQLite and in PostgreSQL.

In PostgreSQL NUL is written in two other characters and read back as itself, text is compared byte by byte, and
integers have 64 bits.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from sqlalchemy import JSON, BigInteger, ColumnElement, Dialect, Integer, String, TypeDecorator, bindparam
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_NUL, _MARK = "\0", "\ue000"
"""What cannot be written, and the character (of Unicode's private use) that begins what is written for it."""
_LONGEST = 256
"""Characters of an id as it is; the tap takes no longer ones."""
_WRITTEN = {ord(_NUL): _MARK + "0", ord(_MARK): _MARK + "1"}


def written(value: str | None) -> str | None:
    """`value` as PostgreSQL takes it; no two texts become the same."""
    return value and value.translate(_WRITTEN)


def read(value: str | None) -> str | None:
    """What `written` was given."""
    return value and value.replace(_WRITTEN[ord(_NUL)], _NUL).replace(_WRITTEN[ord(_MARK)], _MARK)


def lookup(value: str) -> str:
    """What an id that somebody else made up is found by: itself, or of a long one its beginning and its sha256.

    PostgreSQL's indexes hold 2,704 bytes a row; the record's body has the id in full.
    """
    return value if len(value) <= _LONGEST else f"{value[:64]}~{sha256(value.encode()).hexdigest()}"


class Characters(TypeDecorator[str]):
    """Any text, compared byte by byte."""

    impl = String().with_variant(String(collation="C"), "postgresql")
    cache_ok = True

    # Not `process_bind_param`: SQLite would pay a call for every value, for nothing.

    def bind_processor(self, dialect: Dialect) -> Callable[..., Any] | None:
        return written if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[..., Any] | None:
        return read if dialect.name == "postgresql" else None


WHOLE = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; SQLite counts rows only in what is called INTEGER, whose numbers have as many."""


class _Ids(TypeDecorator[list[str]]):
    """Any number of ids as one value. SQLite's JSON ends at NUL: an id with one is not found there, nor another."""

    impl = JSON().with_variant(postgresql.ARRAY(String()), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> list[Any]:
        return [written(one) for one in value or ()]


class _Each(FunctionElement[str]):
    """Such a value, an id a row."""

    inherit_cache = True


@compiles(_Each)
def _rows(each: _Each, compiler: SQLCompiler, **options: Any) -> str:
    each_id = "unnest(" if compiler.dialect.name == "postgresql" else "value FROM json_each("
    return f"(SELECT {each_id}{compiler.process(each.clauses, **options)}))"


def among(column: InstrumentedAttribute[Any], ids: Iterable[str]) -> ColumnElement[bool]:
    """Whether `column` is one of `ids`, which may be more than a statement takes values: they are one."""
    return column.bool_op("IN")(_Each(bindparam(None, list(ids), _Ids(), unique=True)))

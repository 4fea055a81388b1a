"""What every dialect gives: the answer of a stream, and the tokens that the engine named. Shared by their modules.

Values that nobody looks into stay as the bytes that the engine wrote (`msgspec.Raw`): log-probs are most of a response.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from actors.dialects.conversation import DECODE_ERRORS, parsed
from actors.messages import VersionSpan, version_number

Fields = dict[str, msgspec.Raw]
"""A JSON object whose values nobody has decoded yet."""

FIELDS = msgspec.json.Decoder(Fields)
NULL = msgspec.Raw(b"null")
UNKNOWN = "a stream of an unknown form"
TOKEN_ERRORS = (*DECODE_ERRORS, TypeError, ValueError, struct.error)
"""What reading token fields of an unknown form may raise."""


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of a response as the engine named them, fields of `Exchange`; all empty if one part is missing, and
    `why_no_tokens` says which."""

    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: tuple[VersionSpan, ...] = ()
    why_no_tokens: str = ""
    masked: tuple[str, ...] = ()


class Dialect(Protocol):
    """How one endpoint speaks: a module of this room."""

    def merge(self, events: Sequence[bytes], /) -> tuple[Any, str]:
        """The data of each server-sent event -> the response, None if they are of an unknown form or of an error alone,
        and what the engine complained of. Raises msgspec.DecodeError for what it cannot merge."""
        ...

    def ended(self, body: Fields, /) -> bool:
        """Whether the response, merged or not, is whole, and not broken off by the engine."""
        ...

    def tokens(self, body: Fields, /) -> Tokens:
        """May raise `TOKEN_ERRORS`."""
        ...


def value(fields: Fields, name: str) -> Any:
    """The decoded field; None if it is missing or no JSON."""
    return parsed(fields[name]) if name in fields else None


def objects(fields: Fields, name: str) -> list[Fields]:
    """The objects in the list under `name`; empty if there is no such list."""
    return parsed(fields.get(name, NULL), _OBJECTS.decode) or []


def pack(prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[Any], spans: Any = None) -> Tokens:
    """The arrays as bytes, if there are as many log-probs as ids and all are finite.

    Raises:
        struct.error: an id that is no int32.
    """
    if len(ids) != len(logprobs):
        return Tokens(why_no_tokens="token ids and log-probs differ in number")
    # The sum first, for speed: it is above the limit if one of them is.
    if not sum(map(abs, logprobs)) <= _LARGEST and not all(abs(logprob) <= _LARGEST for logprob in logprobs):
        return Tokens(why_no_tokens="log-probs that are not finite")
    # Twice as fast as numpy from lists of Python's integers.
    return Tokens(
        prompt_ids=struct.pack(f"<{len(prompt)}i", *prompt),
        response_ids=struct.pack(f"<{len(ids)}i", *ids),
        logprobs=struct.pack(f"<{len(ids)}f", *logprobs),
        versions=version_spans(spans, len(ids)),
    )


def version_spans(spans: Any, length: int) -> tuple[VersionSpan, ...]:
    """The spans that the engine names, within `length` tokens."""
    found: list[VersionSpan] = []
    for span in spans if isinstance(spans, list) else ():
        start, end = (span.get("start"), span.get("end")) if isinstance(span, dict) else (None, None)
        if isinstance(start, int) and isinstance(end, int) and max(0, start) < min(length, end):
            version = version_number(str(span.get("version")))
            found.append(VersionSpan(version, max(0, start), min(length, end)))
    return tuple(found)


def error_text(error: Any) -> str:
    """The engine's complaint, one line."""
    text = error.get("message", error) if isinstance(error, dict) else error
    return f"the engine broke off: {text}"


_LARGEST = math.ldexp(1.0, 127)
_OBJECTS = msgspec.json.Decoder(list[Fields])

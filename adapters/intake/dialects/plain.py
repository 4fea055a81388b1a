"""`/v1/embeddings` and all paths that nobody knows: kept as they came, and no step of anything."""

from collections.abc import Sequence

import msgspec

from adapters.intake.dialects.form import Dialect, Fields, Merged, Tokens


def _merge(events: Sequence[bytes]) -> Merged:
    return Merged([msgspec.Raw(data) for data in events], bool(events), "a stream of an unknown form")


def _ended(body: Fields) -> bool:
    return True


def _tokens(body: Fields) -> Tokens:
    return Tokens(why="no conversation")


def plain() -> Dialect:
    """What is not understood."""
    return Dialect(name="plain", merge=_merge, ended=_ended, tokens=_tokens)

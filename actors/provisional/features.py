"""What the outcome model sees of a run: signals, counts, words and calls, in a sparse vector of fixed length. Pure.

Signals and counts have places of their own; words, calls, and each signal with its agent are hashed ("Feature Hashing
for Large Scale Multitask Learning", Weinberger et al. 2009; signal and agent together: Daumé 2007, "Frustratingly Easy
Domain Adaptation"). So a signal that lies for one agent can weigh another way there, and no text is kept.
"""

from collections.abc import Iterator, Mapping
from math import log1p, sqrt
from zlib import crc32

import msgspec

from actors.provisional.signals import SIGNALS
from actors.provisional.transcript import Transcript, words

HASHED = 512
"""Places for words, calls and agents: with some hundreds of outcomes to learn from more would be noise."""
_COUNTS = ("one", "steps", "errors", "invalid", "repeated", "calls", "turns", "answer")
DENSE = len(_COUNTS) + len(SIGNALS)
SIZE = DENSE + HASHED
_PLACES = {name: len(_COUNTS) + number for number, name in enumerate(SIGNALS)}


class Vector(msgspec.Struct, frozen=True, array_like=True):
    """A sparse vector of `SIZE`."""

    places: list[int]
    values: list[float]
    signals: dict[str, int]
    """What each signal said, those that said nothing left out."""


def vector(run: Transcript, said: Mapping[str, int]) -> Vector:
    """Of a run and of what signals say of it."""
    found: dict[int, float] = {}
    counts = (
        1.0, log1p(run.steps) / 2, min(1.0, run.errors / max(1, run.steps)), float(run.invalid > 0),
        min(1.0, run.repeated / 2), log1p(len(run.calls)) / 2, log1p(len(run.turns)) / 2, log1p(len(run.answer)) / 4,
    )  # fmt: skip
    found.update({place: value for place, value in enumerate(counts) if value})
    for name, value in said.items():
        found[_PLACES[name]] = float(value)
        _add(found, f"s {run.agent} {name}", float(value))
    _add(found, f"agent {run.agent}", 1.0)
    for family in _families(run):
        share = 1.0 / sqrt(len(family)) if family else 0.0
        for name in family:
            _add(found, name, share)
    places = sorted(found)
    return Vector(places, [round(found[place], 4) for place in places], dict(said))


def without(one: Vector, run_agent: str, quarantined: frozenset[str]) -> Vector:
    """`one` as if the `quarantined` signals had said nothing."""
    silent = quarantined & one.signals.keys()
    if not silent:
        return one
    gone = {_PLACES[name] for name in silent}
    shared = {_hash(f"s {run_agent} {name}"): float(one.signals[name]) for name in silent}
    kept = [
        (place, value - shared.get(place, 0.0)) for place, value in zip(one.places, one.values, strict=True)
        if place not in gone
    ]  # fmt: skip
    said = {name: value for name, value in one.signals.items() if name not in silent}
    return Vector([place for place, _ in kept], [value for _, value in kept], said)


def _families(run: Transcript) -> Iterator[list[str]]:
    """Words of the goal, of the user's last word, of the answer; tools with their verdicts, and what followed what."""
    yield [f"g {word}" for word in words(run.goal) if not any(letter.isdigit() for letter in word)][:32]
    yield [f"u {word}" for word in words(run.turns[-1] if run.turns else "")][:32]
    yield [f"a {word}" for word in words(run.answer) if not any(letter.isdigit() for letter in word)][:32]
    yield list(dict.fromkeys(f"c {tool} {verdict}" for tool, verdict in run.calls))
    yield list(
        dict.fromkeys(f"p {one} {two}" for (one, _), (two, _) in zip(run.calls, run.calls[1:], strict=False))
    )  # fmt: skip


def _hash(name: str) -> int:
    return DENSE + crc32(name.encode("utf-8", "replace")) % HASHED


def _add(found: dict[int, float], name: str, value: float) -> None:
    place = _hash(name)
    found[place] = found.get(place, 0.0) + value

"""The frozen lists of plants stay what they were when the patterns were first measured on them."""

import hashlib

import msgspec
import pytest

from tests.support.planted import Planted, frozen, sealed


@pytest.mark.parametrize(
    ("made", "count", "digest"),
    [
        (frozen(), 200, "80461febf5faeed9"),
        (sealed(), 100, "e3d9519221613f4c"),
    ],
)
def test_frozen(made: list[Planted], count: int, digest: str) -> None:
    assert len(made) == count
    assert hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:16] == digest

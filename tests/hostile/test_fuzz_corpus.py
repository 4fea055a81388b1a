"""What fuzzing found or reached, read again by what it was made for (`tests.fuzz`), without a fuzzer."""

import time
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, seeds

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
SECONDS = 5.0
"""Of the CPU, for one input of 4 KiB at most."""


def inputs(target: str) -> list[bytes]:
    return [*seeds(target), *(path.read_bytes() for path in sorted((CORPUS / target).glob("*")))]


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_found_is_read_or_refused(target: str) -> None:
    for data in inputs(target):
        began = time.process_time()
        TARGETS[target](data)
        assert time.process_time() - began < SECONDS, data[:200]

"""An engine with two versions, for what swaps them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import checkpoints
from tests.support.engines import embedded_engine


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the versions 0 and 1."""
    directory = tmp_path_factory.mktemp("numbered")
    for number in (0, 1):
        checkpoints.write_manifest(checkpoints.write(directory / f"v{number:06d}", number + 1), number)
    return directory


@pytest.fixture(scope="module")
def url(numbered: Path) -> Iterator[str]:
    with embedded_engine(numbered / "v000000", "--dev-mode", "--weight-version", "0") as url:
        yield url

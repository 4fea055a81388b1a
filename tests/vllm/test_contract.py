"""What every engine promises, promised by a real vLLM with the plug-in."""

from pathlib import Path

import pytest

from tests.contract.test_engine import *  # noqa: F403  the suite itself; here it gets another engine


@pytest.fixture(scope="module")
def place(tiny: str, versions: Path) -> tuple[str, Path]:
    return tiny, versions

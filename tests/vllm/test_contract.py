"""What every engine promises, promised by a real vLLM with the plug-in."""

from pathlib import Path

import pytest

from tests.contract.test_engine import *  # noqa: F403  the suite itself; here it gets another engine
from tests.vllm.conftest import Started


@pytest.fixture(scope="module")
def place(tiny: Started, versions: Path) -> tuple[str, Path]:
    return tiny.url, versions

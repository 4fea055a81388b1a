"""Every command of the documentation is run as it stands there, page by page and in order, on a real installation.

What cannot be run here says why before its block, and is held against the parsers that it is for.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.commands import faults, simple_commands
from tests.docs.installation import Installation
from tests.support.patience import within

pytestmark = pytest.mark.timeout(within(900))  # the first one waits for the installation
_ALL = blocks("sh")
_NOT_RUN = [block for block in _ALL if block.not_run]
_RUN = [block for block in (*_ALL, *blocks("python")) if not block.not_run]


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("installation"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def desks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory in which the commands of each page are given."""
    return {page: tmp_path_factory.mktemp("desk") for page in {block.page for block in blocks("sh", "python")}}


@pytest.mark.parametrize("block", _RUN, ids=str)
def test_what_a_block_says_works_as_it_stands_there(
    block: Block, installation: Installation, desks: dict[str, Path]
) -> None:
    desk = desks[block.page]
    if not any(desk.iterdir()):
        installation.place(desk)
    script = block.text if block.language == "sh" else f"python - <<'END'\n{block.text}END\n"
    status, said = installation.run(script, desk)
    assert status == block.status, f"{block} ended with {status}:\n{said[-6000:]}"


@pytest.mark.parametrize("block", _NOT_RUN, ids=str)
def test_commands_that_cannot_be_run_here_are_at_least_taken_by_their_parsers(block: Block) -> None:
    assert not [fault for words in simple_commands(block.text) for fault in faults(words)]

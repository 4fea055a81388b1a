"""Says at the end which blocks of the documentation were not run, and why."""

import pytest

from tests.docs.blocks import blocks


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = [block for block in blocks("sh", "python") if block.not_run]
    terminalreporter.section(f"blocks that are checked and not run: {len(left)}")
    for block in left:
        terminalreporter.write_line(f"{block.place}: {block.not_run}")

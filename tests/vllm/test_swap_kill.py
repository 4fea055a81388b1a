"""kill -9 in the midst of a swap, with a real vLLM and the plug-in behind it: at the points where it is the engine that
makes the difference. tests/chaos/test_swap_kill.py has all of them."""

import pytest

from tests.chaos import test_swap_kill as table
from tests.chaos.conftest import numbered  # noqa: F401
from tests.chaos.test_swap_kill import *  # noqa: F403  its fixtures and what has no points
from tests.chaos.test_swap_kill import Bench, named
from tests.vllm.conftest import Started

DAEMON_DIES = [
    ("evolved_info", 1, "before"),  # the plug-in is asked
    ("evolved_prepare", 1, "before"),
    ("evolved_prepare", 1, "after"),
    ("pause", 1, "after"),
    ("load", 1, "before"),
    ("load", 1, "after"),
]
BOTH_DIE = [("load", 1, "before"), ("load", 1, "after")]


@pytest.fixture(scope="module")
def url(tiny: Started) -> str:
    return tiny.url


@pytest.mark.parametrize("point", DAEMON_DIES, ids=named)
async def test_the_daemon_dies_and_the_engine_goes_on(bench: Bench, point) -> None:
    await table.test_the_daemon_dies_and_the_engine_goes_on(bench, point)


@pytest.mark.parametrize("point", BOTH_DIE, ids=named)
async def test_daemon_and_program_die_and_the_next_daemon_resumes_the_engine(bench: Bench, point) -> None:
    await table.test_daemon_and_program_die_and_the_next_daemon_resumes_the_engine(bench, point)

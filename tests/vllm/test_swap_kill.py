"""kill -9 at every line of the swap protocol, with a real vLLM and the plug-in behind it."""

import pytest

from tests.chaos.test_swap_kill import *  # noqa: F403  the tables and what they ask; here they get another engine
from tests.chaos.test_swap_kill import Bench, test_the_daemon_dies_and_the_engine_goes_on
from tests.vllm.conftest import Started

BY_THE_PLUG_IN = [("evolved_info", 1, "before"), ("evolved_prepare", 1, "before"), ("evolved_prepare", 1, "after")]


@pytest.fixture(scope="module")
def url(tiny: Started) -> str:
    return tiny.url


@pytest.mark.parametrize("point", BY_THE_PLUG_IN, ids=lambda point: "-".join(map(str, point)))
async def test_so_it_does_while_the_workers_read_the_version(bench: Bench, seen, point) -> None:
    await test_the_daemon_dies_and_the_engine_goes_on(bench, seen, point)

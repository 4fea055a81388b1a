"""nats-server killed and stopped, the daemon killed and stopped, all under load: agents see no error, and every call
that they got an answer to is in the store, once, in the one trajectory of its run."""

import pytest

from tests.benchmarks.pipeline import chaos, drain
from tests.support.patience import within

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(within(900)), pytest.mark.promise]
CALLS = 3200


@pytest.fixture
def anyio_backend() -> object:
    return ("asyncio", {"use_uvloop": True})


async def test_no_call_is_lost_or_doubled_while_everything_behind_the_tap_is_killed(tmp_path):
    account = await chaos(tmp_path, CALLS, rate=200.0, seed=3)
    assert account.exchanges == CALLS
    assert (account.lost, account.doubled, account.split, account.client_errors) == (0, 0, 0, 0)


async def test_a_spool_that_filled_while_the_daemon_was_dead_is_emptied_whole(tmp_path):
    _, _, account = await drain(tmp_path, CALLS)
    assert account.exchanges == CALLS
    assert (account.lost, account.doubled, account.split, account.client_errors) == (0, 0, 0, 0)

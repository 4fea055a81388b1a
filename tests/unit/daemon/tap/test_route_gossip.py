"""What one worker of a tap learns, the others know, however busy they are. Conversations: `tests/chaos`."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from daemon.tap.route_gossip import RouteGossip
from tests.support.patience import until

pytestmark = pytest.mark.anyio


class Worker:
    """Remembers what it hears, and tells it to those that greet."""

    def __init__(self, directory: Path, number: int) -> None:
        self.gossip = RouteGossip(directory, number, 2)
        self.known: dict[bytes, str] = {}
        self.gossip.open(self._learned, lambda: ((engine, key) for key, engine in self.known.items()))

    def learn(self, engine: str, *keys: bytes) -> None:
        self._learned(engine, keys)
        self.gossip.tell(engine, keys)

    def _learned(self, engine: str, keys: Sequence[bytes]) -> None:
        self.known.update(dict.fromkeys(keys, engine))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[[int], Worker]]:
    started: list[Worker] = []

    def start(number: int) -> Worker:
        started.append(Worker(tmp_path, number))
        return started[-1]

    yield start
    for worker in started:
        worker.gossip.close()


async def test_a_sibling_that_is_busy_misses_nothing_and_what_it_cannot_read_is_passed_over(
    start: Callable[[int], Worker],
) -> None:
    one, two = start(0), start(1)
    one.learn("a", b"first")
    line = one.gossip._lines[1]._socket
    assert line is not None
    line.send(b"\xc1")
    for number in range(20_000):  # no turn of the loop between them
        one.learn("ab"[number % 2], b"%d" % number)
    await until(lambda: len(two.known) == 20_001, "it has heard all")
    assert two.known == one.known
    assert one.gossip.dropped == 0


async def test_what_nobody_hears_is_bounded_and_counted(start: Callable[[int], Worker]) -> None:
    one = start(0)
    one.learn("a", b"k1", b"k2")
    assert one.gossip.dropped == 2
    two = start(1)
    for first in range(0, 300_000, 1000):
        one.learn("a", *(b"%d" % number for number in range(first, first + 1000)))
    assert 0 < one.gossip.dropped < 300_000
    told = 300_000 - (one.gossip.dropped - 2)
    await until(lambda: len(set(two.known) - {b"k1", b"k2"}) == told, "it has heard all that was not dropped")
    assert b"299999" in two.known, "the newest are kept"

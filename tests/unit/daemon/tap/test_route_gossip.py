"""What one worker of a tap learns, the others know, however busy they are."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from daemon.tap.route_gossip import RouteGossip
from tests.support.patience import until


class Worker:
    """Remembers what it hears, and tells it to those that greet."""

    def __init__(self, directory: Path, number: int, count: int = 2) -> None:
        self.gossip = RouteGossip(directory, number, count)
        self.known: dict[bytes, str] = {}

    def open(self) -> None:
        self.gossip.open(self._learned, lambda: ((engine, key) for key, engine in self.known.items()))

    def learn(self, engine: str, *keys: bytes) -> None:
        self._learned(engine, keys)
        self.gossip.tell(engine, keys)

    def _learned(self, engine: str, keys: Sequence[bytes]) -> None:
        self.known.update(dict.fromkeys(keys, engine))


def test_what_is_told_is_there_before_the_listener_has_had_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        one, two, three = (Worker(tmp_path, number, 3) for number in range(3))
        for each in (one, two, three):
            each.open()
        one.learn("a", b"k1", b"k2")
        for other in (two, three):
            assert not other.known
            other.gossip.catch_up()
            assert other.known == {b"k1": "a", b"k2": "a"}
        two.learn("b", b"k1")
        one.gossip.catch_up()
        assert one.known == {b"k1": "b", b"k2": "a"}
        for each in (one, two, three):
            each.gossip.close()

    asyncio.run(main())


def test_a_sibling_that_is_busy_for_thousands_of_messages_misses_none(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = Worker(tmp_path, 0), Worker(tmp_path, 1)
        one.open()
        two.open()
        for number in range(20_000):  # no turn of the loop between them
            one.learn("ab"[number % 2], b"%d" % number)
        await until(lambda: len(two.known) == 20_000, "it has heard all")
        assert two.known == one.known
        assert one.gossip.dropped == 0
        one.gossip.close()
        two.gossip.close()

    asyncio.run(main())


def test_what_nobody_hears_is_bounded_and_counted(tmp_path: Path) -> None:
    async def main() -> None:
        one = Worker(tmp_path, 0)
        one.open()
        one.learn("a", b"k1", b"k2")
        assert one.gossip.dropped == 2
        two = Worker(tmp_path, 1)
        two.open()
        for first in range(0, 300_000, 1000):
            one.learn("a", *(b"%d" % number for number in range(first, first + 1000)))
        assert 0 < one.gossip.dropped < 300_000
        told = 300_000 - (one.gossip.dropped - 2)
        await until(lambda: len(set(two.known) - {b"k1", b"k2"}) == told, "it has heard all that was not dropped")
        assert b"299999" in two.known, "the newest are kept"
        one.gossip.close()
        two.gossip.close()

    asyncio.run(main())


def test_a_worker_that_is_started_again_is_told_what_the_others_remember(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = Worker(tmp_path, 0), Worker(tmp_path, 1)
        one.open()
        two.open()
        one.learn("a", *(b"%d" % number for number in range(5000)))
        two.gossip.catch_up()
        two.learn("b", b"3")
        await until(lambda: one.known[b"3"] == "b" and len(two.known) == 5000, "each has heard the other")
        two.gossip.close()  # killed, or ended: the kernel closes its sockets either way
        again = Worker(tmp_path, 1)
        again.open()
        await until(lambda: again.known == one.known, "it is told what was before")
        one.learn("c", b"new")
        await until(lambda: again.known.get(b"new") == "c", "it hears what is new")
        assert one.gossip.dropped == 0
        one.gossip.close()
        again.gossip.close()

    asyncio.run(main())


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = Worker(tmp_path, 0), Worker(tmp_path, 1)
        one.open()
        two.open()
        one.learn("a", b"k")
        line = one.gossip._lines[1]._socket
        assert line is not None
        line.send(b"\xc1")
        one.learn("b", b"k")
        await until(lambda: two.known == {b"k": "b"}, "it hears what can be read")
        one.gossip.close()
        two.gossip.close()

    asyncio.run(main())

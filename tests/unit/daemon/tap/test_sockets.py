"""A port that a tap listens on is not quietly shared."""

import pytest

from daemon.tap.errors import PortTaken
from daemon.tap.sockets import bind, port_of


def test_a_second_tap_does_not_start_on_a_port_that_one_listens_on_unless_it_is_told_to() -> None:
    (first,) = bind("127.0.0.1", 0, "tap.port")
    with first:
        port = port_of([first])
        first.listen()
        with pytest.raises(PortTaken, match=r"tap\.port = \d+ .*Address already in use.*tap\.share_port = true"):
            bind("127.0.0.1", port, "tap.port")
        (second,) = bind("127.0.0.1", port, "tap.port", shared=True)
        second.close()


def test_one_that_has_stopped_listening_is_no_obstacle() -> None:
    (first,) = bind("127.0.0.1", 0, "tap.port")
    first.listen()
    port = port_of([first])
    first.close()
    (second,) = bind("127.0.0.1", port, "tap.port")
    second.close()

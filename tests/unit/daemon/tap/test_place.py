"""Which of several taps one is: the first number that is free, or the one that it is told. Over processes:
`tests/chaos/test_taps.py`."""

from pathlib import Path

import pytest

from daemon.tap.errors import NumberTaken
from daemon.tap.place import Place, Told, admin_port, told


def test_taps_take_the_first_free_number_and_one_that_has_ended_leaves_its_own(tmp_path: Path) -> None:
    first, second = Place(tmp_path), Place(tmp_path)
    first.tell(Told(number=0, pid=7, ports=(8080,), admin="127.0.0.1:8081"))
    assert (first.number, second.number) == (0, 1)
    assert [(one.number, one.pid) for one in told(tmp_path)] == [(0, 7)]
    with pytest.raises(NumberTaken, match=r"number 0: .*tap\.json names its process; .* --number"):
        Place(tmp_path, 0)
    first.leave()
    assert told(tmp_path) == []
    assert Place(tmp_path).number == 0
    assert Place(tmp_path, 5).directory == tmp_path / "5"


def test_where_nothing_can_be_written_a_tap_serves_and_takes_its_number_once_it_can(tmp_path: Path) -> None:
    spools = tmp_path / "spool"
    spools.write_text("a file where the directory should be")
    one, other = Place(spools), Place(spools)
    assert (one.number, other.number) == (0, 1)
    one.tell(Told(number=0, pid=7, ports=(8080,), admin="127.0.0.1:8081"))
    spools.unlink()
    one.hold()
    assert [each.pid for each in told(spools)] == [7]
    other.hold()
    assert Place(spools).number == 2


def test_an_admin_port_is_counted_over_ports_that_mean_something_else() -> None:
    named = {8080, 8081, 8082, 8084}
    assert [admin_port(8081, number, named) for number in range(4)] == [8081, 8083, 8085, 8086]
    assert admin_port(0, 3, named) == 0

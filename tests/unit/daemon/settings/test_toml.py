"""Settings from TOML: the unknown is named with its nearest neighbour, a wrong type with the one that was wanted."""

from pathlib import Path

import msgspec
import pytest

from daemon.errors import ConfigError
from daemon.settings import toml


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    learning_rate: float = 1e-6
    steps: int = 4


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    state_dir: str = "state"
    learner: Inner = msgspec.field(default_factory=Inner)


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError, match=r"conf\.toml: unknown setting learner\.learnin_rate; did you mean learner\.learning_rate\?"
    ):
        toml.convert({"learner": {"learnin_rate": 1.0}}, Outer, "conf.toml")


def test_a_key_like_no_other_lists_what_is_known() -> None:
    with pytest.raises(ConfigError, match="known here: learner, state_dir"):
        toml.convert({"zzz": 1}, Outer, "conf.toml")


def test_a_wrong_type_names_the_key_and_the_type() -> None:
    with pytest.raises(ConfigError, match=r"learner\.steps: expected `int`, got `str`"):
        toml.convert({"learner": {"steps": "four"}}, Outer, "conf.toml")


def test_a_missing_file_says_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config"):
        toml.read(tmp_path / "absent.toml")


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[learner\n")
    with pytest.raises(ConfigError, match="line 1"):
        toml.read(path)


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000])
def test_a_value_beyond_what_a_parser_bears_is_no_toml(tmp_path: Path, value: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"a = {value}")
    with pytest.raises(ConfigError, match="no TOML"):
        toml.read(path)
    assert toml.assignment(f"a={value}") == {"a": value}


def test_merge_lays_table_over_table() -> None:
    base = {"a": 1, "t": {"x": 1, "y": 2}}
    assert toml.merge(base, {"t": {"y": 3}, "b": 4}) == {"a": 1, "b": 4, "t": {"x": 1, "y": 3}}
    assert base == {"a": 1, "t": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("learner.lr=1e-5", {"learner": {"lr": 1e-5}}),
        ("state_dir=/tmp/x", {"state_dir": "/tmp/x"}),
        ("tap.capture=false", {"tap": {"capture": False}}),
    ],
)
def test_an_assignment_is_a_table(text: str, table: dict[str, object]) -> None:
    assert toml.assignment(text) == table


def test_an_assignment_without_a_value_shows_an_example() -> None:
    with pytest.raises(ConfigError, match="for example"):
        toml.assignment("learner.lr")

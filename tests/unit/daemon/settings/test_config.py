"""config.toml is the reference: every key and its default; and the settings hold together."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.cli.main import main
from daemon.demo.world import PROFILE
from daemon.errors import ConfigError
from daemon.settings.config import Config, curator_settings, load, serving_engines, tap_settings

REFERENCE = Path(__file__).parents[4] / "config.toml"
UPSTREAMS = '[tap]\nupstreams = [{ name = "a", url = "http://x" }, { name = "c", url = "http://y" }]\n'


def test_the_reference_says_the_defaults() -> None:
    assert load(REFERENCE) == Config()


def test_every_key_is_in_the_reference() -> None:
    def keys(table: dict[str, Any], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        found = set()
        for key, value in table.items():
            if value is None:
                assert f"# {key} is not set by default" in REFERENCE.read_text()
                continue
            found.add((*path, key))
            if isinstance(value, dict):
                found |= keys(value, (*path, key))
        return found

    assert keys(tomllib.loads(REFERENCE.read_text())) == keys(msgspec.to_builtins(Config()))


def test_everything_listens_on_loopback_by_default_and_the_demos_profile_is_valid() -> None:
    config = Config()
    assert {config.tap.host, config.tap.admin_host, config.control.host} == {"127.0.0.1"}
    assert load(PROFILE).sandbox.environment == "travel"


def test_the_settings_are_shown_as_toml_that_can_be_read_again(tmp_path: Path, capsys) -> None:
    assert main(["config"]) == 0
    shown = tmp_path / "config.toml"
    shown.write_text(capsys.readouterr().out)
    assert load(shown) == Config()


def test_a_state_directory_is_the_same_for_every_process_and_holds_a_relative_spool(tmp_path: Path) -> None:
    settings = Config(state_dir="state")
    assert (settings.state, settings.spool) == (Path.cwd() / "state", Path.cwd() / "state" / settings.tap.spool_dir)
    config = load(None, [f"state_dir={tmp_path}"])
    assert tap_settings(config).spool_dir == str(tmp_path / "spool")
    elsewhere = load(None, [f"state_dir={tmp_path}", "tap.spool_dir=/var/spool/x"])
    assert tap_settings(elsewhere).spool_dir == "/var/spool/x"


def test_without_a_sandbox_no_group_is_waited_for() -> None:
    assert curator_settings(Config()).groups_per_batch == 0
    with_one = load(None, ['sandbox.environment="travel"'])
    assert curator_settings(with_one) == with_one.curator


def fleet(tmp_path: Path, *names: str, more: str = "") -> Path:
    path = tmp_path / "c.toml"
    engines = "".join(f'[[engines.fleet]]\nname = "{n}"\nurl = "http://127.0.0.1:80{i}"\n' for i, n in enumerate(names))
    path.write_text(f'state_dir = "{tmp_path}"\n{more}{engines}')
    return path


def test_one_engine_is_called_serving_and_several_are_the_taps_too(tmp_path: Path) -> None:
    assert serving_engines(Config()) == {"serving": "http://127.0.0.1:8000"}
    config = load(fleet(tmp_path, "a", "b"))
    assert serving_engines(config) == {"a": "http://127.0.0.1:800", "b": "http://127.0.0.1:801"}
    tap = tap_settings(config)
    assert [(one.name, one.url, one.weight) for one in tap.upstreams] == [
        ("a", "http://127.0.0.1:800", 1.0), ("b", "http://127.0.0.1:801", 1.0),
    ]  # fmt: skip
    assert tap.routes_file == str(tmp_path / "routes.json")


@pytest.mark.parametrize(
    ("names", "more", "said"),
    [
        (("a", "a"), "", r"engines\.fleet"), (("shadow", "b"), "", r"engines\.fleet"),
        (("../x", "b"), "", r"engines\.fleet"), (("", "b"), "", r"engines\.fleet"),
        (("a", "b"), UPSTREAMS, r"a, c and engines\.fleet a, b"),
    ],
    ids=["twice", "the shadow's", "a path", "none", "another than the tap's"],
)  # fmt: skip
def test_an_engines_name_that_cannot_be_one_is_refused(
    tmp_path: Path, names: tuple[str, ...], more: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load(fleet(tmp_path, *names, more=more))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("learner.credit.alfa=0.1", r"learner\.credit\.alfa; did you mean learner\.credit\.alpha"),
        ("unlike_any=1", "known here: adapters, "),
        ("learner.lr=-1.0", r"learner\.lr"),
        ("learner.lr=four", r"learner\.lr: expected `float`, got `str`"),
        ("store.connections=1", r"store\.connections"),
        ("store.statement_seconds=-1", r"store\.statement_seconds"),
        ('engines.serving.url="http://10.0.0.1:8000/v1/"', r"engines\.serving\.url = .*: write 'http://10.0.0.1:8000'"),
        ('engines.shadow.url="http://10.0.0.1:8000/v1/"', r"engines\.shadow\.url = .*: write 'http://10.0.0.1:8000'"),
        ('store.url="postgresql+psycopg://me:s3cr3t@host/db"', "password_file"),
        ('store.url="postgresql+psycopg://me@host/db?password=s3cr3t"', "password_file"),
    ],
)
def test_what_cannot_work_is_named_and_no_password_shown(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(None, [line])
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"), [("[learner\n", "line 1"), ("a = " + "[" * 5000, "no TOML"), ("a = " + "9" * 5000, "no TOML")]
)
def test_a_file_that_is_no_toml_is_told_and_an_assignment_that_is_none_is_text(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(ConfigError, match="--config"):
        load(path)
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(path)
    value = text.removeprefix("a = ")
    assert load(None, [f"state_dir={value}"]).state_dir == value


@pytest.mark.parametrize(
    "url",
    [
        "", "sqlite:////var/lib/evolved/evolved.db", "postgresql+psycopg://me@host:5432/db",
        "postgresql+psycopg://me@[::1]:5432/db?sslmode=verify-full", "postgresql+psycopg://me@/db?host=/run/postgresql",
    ],
)  # fmt: skip
def test_addresses_of_databases_without_a_password_are_taken(url: str) -> None:
    assert load(None, [f'store.url="{url}"']).store.url == url

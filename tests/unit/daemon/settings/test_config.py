"""config.toml is the reference: every key, its default, and what it is for; and the settings hold together."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.cli.main import main
from daemon.demo.world import PROFILE
from daemon.errors import ConfigError
from daemon.settings.config import Config, curator_settings, load, serving_engines, tap_settings
from daemon.settings.reference import field_texts, reference
from daemon.settings.reference_page import reference_page
from learner.build import CLIP_BOOSTED, CLIP_HIGH

REFERENCE = Path(__file__).parents[4] / "config.toml"
PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_reference_in_the_repository_is_up_to_date() -> None:
    assert REFERENCE.read_text() == reference(), "run: evolved config --reference > config.toml"


def test_the_page_of_settings_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_page(), "run: evolved config --reference --markdown > docs/configuration.md"


def test_every_key_is_on_the_page_in_the_section_that_it_belongs_to() -> None:
    sections = {part.partition("\n")[0]: part for part in PAGE.read_text().split("\n## ")}
    for name, value in msgspec.to_builtins(Config()).items():
        if isinstance(value, dict) and value:
            inner = [key for key, item in value.items() if not isinstance(item, dict)]
            assert not [key for key in inner if f"| `{key}` |" not in sections[name]]


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


def test_the_defaults_are_the_papers_but_for_the_labels_weight() -> None:
    config = Config()
    assert (config.learner.lr, config.learner.kl_coef) == (1e-6, 0.001)
    assert (CLIP_HIGH, CLIP_BOOSTED) == (0.28, 0.6)
    assert (config.learner.credit.alpha, config.learner.credit.discount) == (1.0, 0.0)  # docs/measured.md
    assert config.rollout.eta == 0.5


def test_everything_listens_on_loopback_by_default() -> None:
    config = Config()
    assert {config.tap.host, config.tap.admin_host, config.control.host} == {"127.0.0.1"}


def test_settings_of_the_learner_say_what_they_are_for() -> None:
    from learner.settings import LearnerSettings

    assert all(field_texts(LearnerSettings).values())


def test_the_demos_profile_is_valid() -> None:
    assert load(PROFILE).sandbox.environment == "travel"


def test_assignments_lie_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[learner]\nlr = 1e-5\nmini_batches = 2\n")
    config = load(path, ["learner.lr=2e-5"])
    assert (config.learner.lr, config.learner.mini_batches) == (2e-5, 2)


def test_an_unknown_key_deep_down_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=r"learner\.credit\.alfa; did you mean learner\.credit\.alpha"):
        load(None, ["learner.credit.alfa=0.1"])


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match=r"learner\.lr"):
        load(None, ["learner.lr=-1.0"])


def test_the_spool_lies_in_the_state_directory_unless_it_is_absolute(tmp_path: Path) -> None:
    config = load(None, [f"state_dir={tmp_path}"])
    assert tap_settings(config).spool_dir == str(tmp_path / "spool")
    elsewhere = load(None, [f"state_dir={tmp_path}", "tap.spool_dir=/var/spool/x"])
    assert tap_settings(elsewhere).spool_dir == "/var/spool/x"


def fleet(tmp_path: Path, *names: str, more: str = "") -> Path:
    path = tmp_path / "c.toml"
    engines = "".join(f'[[engines.fleet]]\nname = "{n}"\nurl = "http://127.0.0.1:80{i}"\n' for i, n in enumerate(names))
    path.write_text(f'state_dir = "{tmp_path}"\n{more}{engines}')
    return path


def test_one_engine_is_called_serving() -> None:
    assert serving_engines(Config()) == {"serving": "http://127.0.0.1:8000"}


def test_several_engines_are_the_taps_too(tmp_path: Path) -> None:
    config = load(fleet(tmp_path, "a", "b"))
    assert serving_engines(config) == {"a": "http://127.0.0.1:800", "b": "http://127.0.0.1:801"}
    tap = tap_settings(config)
    assert [(one.name, one.url, one.weight) for one in tap.upstreams] == [
        ("a", "http://127.0.0.1:800", 1.0),
        ("b", "http://127.0.0.1:801", 1.0),
    ]
    assert tap.routes_file == str(tmp_path / "routes.json")


@pytest.mark.parametrize("names", [("a", "a"), ("shadow", "b"), ("../x", "b"), ("", "b")])
def test_an_engines_name_that_cannot_be_one_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"engines\.fleet"):
        load(fleet(tmp_path, *names))


def test_tap_and_daemon_must_have_the_same_names(tmp_path: Path) -> None:
    more = '[tap]\nupstreams = [{ name = "a", url = "http://x" }, { name = "c", url = "http://y" }]\n'
    with pytest.raises(ConfigError, match=r"a, c and engines\.fleet a, b"):
        load(fleet(tmp_path, "a", "b", more=more))


def test_the_settings_are_shown_as_toml_that_can_be_read_again(tmp_path, capsys) -> None:
    assert main(["config"]) == 0
    shown = tmp_path / "config.toml"
    shown.write_text(capsys.readouterr().out)
    assert load(shown) == Config()


def test_a_state_directory_is_the_same_for_every_process_wherever_it_runs() -> None:
    settings = Config(state_dir="state")
    assert (settings.state, settings.spool) == (Path.cwd() / "state", Path.cwd() / "state" / settings.tap.spool_dir)


def test_without_a_sandbox_no_group_is_waited_for() -> None:
    assert curator_settings(Config()).groups_per_batch == 0
    with_one = load(None, ['sandbox.environment="travel"'])
    assert curator_settings(with_one) == with_one.curator


@pytest.mark.parametrize("key", ["engines.serving.url", "engines.shadow.url"])
def test_an_engines_url_with_v1_is_refused_with_what_to_write(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} = .*: write 'http://10.0.0.1:8000', without"):
        load(None, [f'{key}="http://10.0.0.1:8000/v1/"'])

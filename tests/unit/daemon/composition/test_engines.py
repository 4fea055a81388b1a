"""The daemon's engines and the keys that they want."""

from pathlib import Path

import pytest

from daemon.composition.engines import engine_clients
from daemon.errors import ConfigError
from daemon.settings.config import load


def test_each_engine_is_shown_its_own_key(tmp_path: Path) -> None:
    for name in ("a", "shadow"):
        (tmp_path / name).write_text(f"key-of-{name}\n")
    path = tmp_path / "config.toml"
    path.write_text(
        f'[engines.shadow]\napi_key_file = "{tmp_path}/shadow"\n'
        f'[[engines.fleet]]\nname = "a"\nurl = "http://10.0.0.1:8000"\napi_key_file = "{tmp_path}/a"\n'
        '[[engines.fleet]]\nname = "b"\nurl = "http://10.0.0.2:8000"\n'
    )
    keys = {name: engine.key for name, engine in engine_clients(load(path)).items()}
    assert keys == {"a": "key-of-a", "b": "", "shadow": "key-of-shadow"}


@pytest.mark.parametrize("content", [None, "", "two words", "line\nline", "sch\u00f6n"])
def test_a_key_file_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    config = load(None, [f'engines.serving.api_key_file="{file}"'])
    with pytest.raises(ConfigError, match=r"engines\.serving: api_key_file .*--api-key"):
        engine_clients(config)

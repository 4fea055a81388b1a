"""The gate put together from its settings."""

import pytest

from daemon.composition.gate import gate_trial
from daemon.errors import ConfigError
from daemon.settings.reading import load
from tests.support.fakes import FakeEngine, FakeStore


def test_probes_that_cannot_be_read_are_named(tmp_path):
    config = load(None, [f'gate.probes="{tmp_path}/mine.toml"'])
    with pytest.raises(ConfigError, match=r"mine\.toml.*gate\.probes"):
        gate_trial(config, store=FakeStore(), shadow=FakeEngine(), environment=None)

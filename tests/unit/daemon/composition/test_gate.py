"""The gate put together from its settings."""

import pytest

from adapters.environments.travel import TravelDesk
from daemon.composition.gate import gate_trial
from daemon.errors import ConfigError
from daemon.settings.config import load
from tests.support.fakes import FakeEngine, FakeStore


def test_the_judge_of_the_rewards_is_refused_at_the_gate():
    with pytest.raises(ConfigError, match=r"gate\.judge\.name = 'rules' is the judge whose labels are the reward"):
        load(None, ["gate.judge.name=rules"])


def test_two_models_behind_one_adapter_are_two_judges():
    both = ['judge.name="llm"', 'gate.judge.name="llm"', 'judge.options.model="a"']
    load(None, [*both, 'gate.judge.options.model="b"'])
    with pytest.raises(ConfigError, match="is the judge"):
        load(None, [*both, 'gate.judge.options.model="a"'])


def test_a_judge_that_is_not_installed_is_named():
    config = load(None, ['gate.judge.name="conducted"'])
    with pytest.raises(ConfigError, match="no preference adapter 'conducted'"):
        gate_trial(config, store=FakeStore(), shadow=FakeEngine(), environment=TravelDesk())


def test_probes_that_cannot_be_read_are_named(tmp_path):
    config = load(None, ['gate.judge.name=""', f'gate.safety.file="{tmp_path}/mine.toml"'])
    with pytest.raises(ConfigError, match=r"mine\.toml.*gate\.safety\.file"):
        gate_trial(config, store=FakeStore(), shadow=FakeEngine(), environment=None)

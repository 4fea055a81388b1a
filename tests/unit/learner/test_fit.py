"""What does not fit is refused before it is loaded, with figures and what helps."""

import json

import pytest

from learner import fit
from learner.errors import MemoryTooSmall
from learner.settings import LearnerSettings
from learner.sizing import MODELS, Training

GIGA = 1e9


def test_the_refusal_has_the_figures_and_what_helps():
    with pytest.raises(MemoryTooSmall) as refused:
        fit.refuse(MODELS["7b"], Training(gpus=1, tokens=32768, checkpointing=True), 80 * GIGA, "qwen")
    text = str(refused.value)
    assert "the GPU has 80.0 GB" in text
    assert "7.62 billion parameters, 32768 tokens" in text
    assert "AdamW's two moments, fp32 60.9" in text
    assert 'train.trainer = "verl"' in text
    assert "Qwen2.5's" in text


def test_where_no_setting_helps_it_says_how_many_gpus_do():
    ways = fit.remedies(MODELS["14b"], Training(gpus=1, tokens=32768, checkpointing=True), 80 * GIGA)
    gpus = next(int(way.split()[1]) for way in ways if way.startswith("take ") and "GPUs" in way)

    def each(number):
        return fit.needed(MODELS["14b"], Training(trainer="verl", gpus=number, tokens=32768, checkpointing=True))

    assert each(gpus) <= 80 * GIGA < each(gpus - 1)


@pytest.fixture
def warm(tmp_path):
    """Settings whose warm start is a config.json of 7B."""
    shape = MODELS["7b"]
    directory = tmp_path / "warm"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({
        "model_type": "qwen2", "hidden_size": shape.hidden, "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads, "vocab_size": shape.vocabulary,
    }))  # fmt: skip
    return LearnerSettings(warm_start=str(directory), device="cpu")


def test_the_start_refuses_what_the_machine_cannot_hold(warm, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "machine_memory", lambda: 24 * GIGA)
    with pytest.raises(MemoryTooSmall, match=r"this machine has 24\.0 GB"):
        fit.check(warm, tmp_path / "state")
    monkeypatch.setattr(fit, "machine_memory", lambda: 400 * GIGA)
    fit.check(warm, tmp_path / "state")


def test_a_model_that_cannot_be_counted_is_let_through(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "machine_memory", lambda: 1.0)
    fit.check(LearnerSettings(warm_start=str(tmp_path), device="cpu"), tmp_path / "state")
    fit.check(LearnerSettings(device="cpu"), tmp_path / "state")


def test_a_control_group_s_limit_counts_wherever_it_is_above(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/system.slice/evolved.service\n")
    group = tmp_path / "fs" / "system.slice" / "evolved.service"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    without = fit.machine_memory(tmp_path / "fs", own)
    (group.parent / "memory.max").write_text("1000000\n")
    assert without > 1_000_000
    assert fit.machine_memory(tmp_path / "fs", own) == 1_000_000
    assert fit.machine_memory(tmp_path / "nowhere", tmp_path / "nothing") == without

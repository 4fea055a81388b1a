"""The memory estimate: hand-computed terms, and that it counts a real model's parameters."""

from pathlib import Path

import pytest

from daemon.settings.config import load
from learner.trainers.files import load_tensors
from learner.trainers.verl.memory import Run, Shape, estimate, main, read_shape

GIGA = 1e9


def test_states_are_sixteen_bytes_a_parameter_over_all_gpus():
    parts = estimate(Shape(params=8e9), Run(gpus=8))
    states = [size for what, size in parts.items() if "fp32, sharded" in what and "undo" not in what]
    assert sum(states) == 16e9


def test_activations_and_logits_grow_with_tokens_and_shrink_with_ranks_that_share_a_row():
    def variable(**changes):
        parts = estimate(Shape(), Run(**changes))
        return sum(
            size for what, size in parts.items() if "activations" in what or "inputs" in what or "logits" in what
        )

    assert variable(tokens=2048) == pytest.approx(2 * variable(tokens=1024))
    assert variable(tokens=2048, sequence_parallel=2) == pytest.approx(variable(tokens=1024))


def test_logits_are_two_bytes_times_vocabulary():
    parts = estimate(Shape(vocab=1000), Run(tokens=500))
    assert parts["logits, bf16"] == 2 * 500 * 1000
    assert estimate(Shape(vocab=1000), Run(tokens=500, unit_temperature=False))["logits, bf16"] == 4 * 500 * 1000


def test_a_config_s_shape_counts_the_parameters_that_the_file_has(model):
    counted = sum(tensor.numel() for tensor in load_tensors(model / "model.safetensors").values())
    # Qwen3's two head norms a layer are not counted: 0.05 % of this model, less of a large one.
    assert read_shape(model / "config.json", None).params == pytest.approx(counted, rel=1e-3)


@pytest.mark.parametrize(("file", "shape"), [
    ("7b", Shape()),
    ("14b", Shape(params=14.77e9, layers=48, hidden=5120, intermediate=13824, key_value=1024)),
])  # fmt: skip
def test_the_shipped_configurations_load_and_are_estimated_to_fit(file, shape):
    settings = load(Path(f"ops/a100/{file}.toml")).learner
    assert settings.trainer == "verl"
    run = Run(gpus=8, tokens=settings.micro_tokens, sequence_parallel=settings.sequence_parallel)
    assert sum(estimate(shape, run).values()) < 72 * GIGA  # a tenth of 80 left for what formulas forget


def test_the_command_says_whether_it_fits(capsys):
    assert main(["--params", "7.6e9", "--gpus", "8", "--tokens", "32768"]) == 0
    assert main(["--params", "7.6e10", "--gpus", "8"]) == 1
    assert "does NOT fit" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--gpus", "8", "--sequence-parallel", "3"])

"""Two ranks as one trainer: bad input and failures leave them in step."""

import os
import sys

import pytest
import torch

from learner.trainers.files import load_tensors
from learner.trainers.native import NativeTrainer
from tests.support.process import run
from tests.verl import CPU_ENVIRONMENT
from tests.verl.rig import SETTINGS, batch
from tests.verl.test_trainer import CLOSE, distance, files


@pytest.mark.parametrize(
    ("job", "rows"),
    [("few", batch(1, seed=5)), ("masked", batch(6, seed=6, masked=(0, 1, 2, 4, 5)))],
)
def test_fewer_rows_than_ranks_or_a_rank_whose_rows_are_all_masked_train_as_they_would_alone(
    tmp_path, model, two, job, rows
):
    directory, result = two
    assert result[f"{job}_steps"] == 1
    trainer = NativeTrainer(SETTINGS, model)
    trainer.update(rows, seed=0)
    written = load_tensors(directory / job / "model.safetensors")
    assert distance(written, files(trainer, tmp_path)) < CLOSE


def test_a_gradient_that_is_not_finite_is_thrown_away_on_every_rank(two):
    directory, result = two
    assert result["huge"] == [0, 1.0]
    before, after = (load_tensors(directory / name / "model.safetensors") for name in ("masked", "huge"))
    assert distance(before, after) == 0.0


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ("bad", "BatchFileInvalid: advantages"),  # refused before anybody waits
        ("gone", "FileNotFoundError"),  # of all ranks
        ("lost", "CheckpointInvalid"),
        ("blocked", "RankFailed: save_state: IsADirectoryError"),  # of the other rank alone
    ],
)
def test_an_error_is_told_by_rank_0_whoever_had_it_and_the_ranks_still_train(two, job, error):
    assert two[1][job].startswith(error)
    assert two[1]["after"] == 1


def test_orders_become_versions_that_two_ranks_wrote(two):
    directory, result = two
    assert result["served"] == [[0, "trained", 1, "repeated"], [1, "trained", 2, "repeated"]]
    assert len(list((directory / "state" / "learner" / "v000002").glob("optimizer-*-of-00002.safetensors"))) == 2
    weights = [load_tensors(directory / "state" / "versions" / f"v00000{v}" / "model.safetensors") for v in (0, 1, 2)]
    assert distance(weights[0], weights[1]) > 1e-5
    assert distance(weights[1], weights[2]) > 1e-5


def test_a_learner_without_a_gpu_says_what_to_do():
    if torch.cuda.is_available():
        pytest.fail("this suite is for machines without a GPU")
    environment = {k: v for k, v in os.environ.items() if k not in CPU_ENVIRONMENT}
    command = [sys.executable, "-m", "daemon.cli", "learner", "--set", "train.trainer=verl"]
    done = run(command, 200, env=environment)
    assert done.returncode == 2
    assert "there is no GPU" in done.stderr
    assert "set train.trainer = 'native'" in done.stderr

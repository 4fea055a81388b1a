"""The verl trainer against the native one: the same batch file gives the same weights, on one rank and on two."""

import msgspec
import numpy as np
import pytest
import torch

from learner.batch import TrajectoryBatch
from learner.errors import CheckpointInvalid, NonFiniteWeights
from learner.trainers.files import load_tensors
from learner.trainers.native import NativeTrainer
from learner.trainers.verl.files import local
from learner.trainers.verl.trainer import VerlTrainer
from tests.verl.rig import SETTINGS, UPDATES, batch, qwen

CLOSE = 3e-5
"""Rounding in another order has been seen to move a weight by 2.1e-5 in six Adam steps; it depends on the processor."""


def files(trainer, directory):
    directory.mkdir(parents=True, exist_ok=True)
    trainer.save(directory)
    trainer.save_state(directory)
    return load_tensors(directory / "model.safetensors")


def distance(one, other):
    assert one.keys() == other.keys()
    return max(float((one[name].float() - other[name].float()).abs().max()) for name in one)


@pytest.fixture(scope="module")
def native(tmp_path_factory, model, batch_file):
    """Weights and reports of the native trainer after the same updates."""
    trainer, rows = NativeTrainer(SETTINGS, model), TrajectoryBatch.load(batch_file)
    before = trainer.log_probs(rows)
    reports = [trainer.update(rows, seed=i).metrics for i in range(UPDATES)]
    return files(trainer, tmp_path_factory.mktemp("native")), reports, before


def test_one_rank_gives_the_native_trainer_s_weights(tmp_path, model, batch_file, native):
    weights, reports, before = native
    trainer, rows = VerlTrainer(SETTINGS, model), TrajectoryBatch.load(batch_file)
    assert np.abs(trainer.log_probs(rows) - before).max() < 2e-6
    own = [trainer.update(rows, seed=i).metrics for i in range(UPDATES)]
    assert [m["loss"] for m in own] == pytest.approx([m["loss"] for m in reports], abs=1e-6)
    assert [m["grad_norm"] for m in own] == pytest.approx([m["grad_norm"] for m in reports], rel=1e-5)
    assert distance(files(trainer, tmp_path), weights) < CLOSE
    assert distance(load_tensors(model / "model.safetensors"), weights) > 50 * CLOSE  # they did learn


def test_two_ranks_with_uneven_shards_give_the_native_trainer_s_weights(two, native):
    (directory, result), (weights, reports, before) = two, native
    assert np.abs(np.array(result["log_probs"]) - before).max() < 2e-6
    assert [m["loss"] for m in result["metrics"]] == pytest.approx([m["loss"] for m in reports], abs=1e-6)
    # Adam hardly sees a gradient that is off by a factor; its norm does.
    assert [m["grad_norm"] for m in result["metrics"]] == pytest.approx([m["grad_norm"] for m in reports], rel=1e-5)
    assert distance(load_tensors(directory / "end" / "model.safetensors"), weights) < CLOSE


def test_two_ranks_hold_half_of_weights_and_moments_each(two):
    sizes = two[1]["sizes"]
    for what in ("weights", "moments"):
        assert sizes[what] == pytest.approx(4 * sizes["parameters"] / 2, rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"mini_batches": 3},
        {"kl_coef": 0.05},
        {"gradient_checkpointing": True, "mini_batches": 2},
        {"kl_limit": 0.01, "lr": 1e-2},
        {"kl_limit": 1e-9, "lr": 1e-2},
        {"weight_decay": 0.1, "beta2": 0.9},
    ],
    ids=lambda changes: ",".join(f"{name}={value}" for name, value in changes.items()),
)
def test_every_option_means_the_same_in_both_trainers(tmp_path, model, changes):
    rows = batch(7, seed=3, temperature=[0.7, 1.0, 1.3, 1.0, 0.9, 1.0, 1.1])
    settings = msgspec.structs.replace(SETTINGS, **changes)
    one, other = VerlTrainer(settings, model), NativeTrainer(settings, model)
    for seed in range(2):
        ours, theirs = one.update(rows, seed=seed), other.update(rows, seed=seed)
        assert ours.steps == theirs.steps
        if seed == 0:  # each guard's case does what it is there for
            assert ours.metrics["steps_shrunk"] == (settings.kl_limit == 0.01)
            assert ours.metrics["steps_undone"] == (settings.kl_limit == 1e-9)
        shared = ours.metrics.keys() & theirs.metrics.keys()
        assert shared == theirs.metrics.keys()
        for name in shared:
            assert ours.metrics[name] == pytest.approx(theirs.metrics[name], rel=2e-3, abs=2e-5), name
    assert distance(files(one, tmp_path / "one"), files(other, tmp_path / "other")) < CLOSE


def test_what_two_ranks_wrote_one_rank_goes_on_from(tmp_path, two, model, batch_file):
    directory, rows = two[0], TrajectoryBatch.load(batch_file)
    assert len(list((directory / "middle").glob("optimizer-*-of-00002.safetensors"))) == 2
    trainer = VerlTrainer(SETTINGS, model)
    trainer.restore(directory / "middle", directory / "middle")
    for seed in range(UPDATES // 2, UPDATES):
        trainer.update(rows, seed=seed)
    assert distance(files(trainer, tmp_path), load_tensors(directory / "end" / "model.safetensors")) < CLOSE


def test_the_native_trainer_goes_on_from_one_rank_s_files(tmp_path, model, batch_file):
    rows, ours, native = TrajectoryBatch.load(batch_file), VerlTrainer(SETTINGS, model), NativeTrainer(SETTINGS, model)
    ours.update(rows, seed=0)
    files(ours, tmp_path / "one")
    native.restore(tmp_path / "one", tmp_path / "one")
    for trainer in (ours, native):
        trainer.update(rows, seed=1)
    assert distance(files(ours, tmp_path / "two"), files(native, tmp_path / "native")) < CLOSE


@pytest.mark.parametrize("tied", [False, True])
def test_files_keep_names_shapes_and_types_and_lose_nothing(tmp_path, tied):
    source = qwen(tmp_path / "model", tied=tied, dtype="bfloat16")
    trainer, rows = VerlTrainer(SETTINGS, source), batch(4, seed=1)
    trainer.update(rows, seed=0)
    loaded = load_tensors(source / "model.safetensors")
    written = files(trainer, tmp_path / "written")
    assert {k: (v.shape, v.dtype) for k, v in written.items()} == {k: (v.shape, v.dtype) for k, v in loaded.items()}
    trainer.update(rows, seed=1)
    undisturbed = files(trainer, tmp_path / "end")
    trainer = VerlTrainer(SETTINGS, source)  # another process would do the same
    trainer.restore(tmp_path / "written", tmp_path / "written")  # fp32 masters come from the state
    trainer.update(rows, seed=1)
    assert distance(files(trainer, tmp_path / "again"), undisturbed) == 0.0


def test_without_state_the_optimizer_starts_afresh(tmp_path, model, batch_file):
    rows, trainer, fresh = TrajectoryBatch.load(batch_file), VerlTrainer(SETTINGS, model), VerlTrainer(SETTINGS, model)
    trainer.update(rows, seed=0)
    trainer.restore(model, None)
    for subject in (trainer, fresh):
        subject.update(rows, seed=1)
    assert distance(files(trainer, tmp_path / "one"), files(fresh, tmp_path / "other")) == 0.0


def test_nan_is_never_written(tmp_path, model):
    trainer = VerlTrainer(SETTINGS, model)
    with torch.no_grad():
        local(trainer._parameters()[3][1]).view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteWeights, match=trainer._parameters()[3][0]):
        trainer.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_files_of_another_model_change_nothing(tmp_path, model):
    trainer = VerlTrainer(SETTINGS, model)
    before = files(trainer, tmp_path / "before")
    other = qwen(tmp_path / "other", hidden=32)
    with pytest.raises(CheckpointInvalid, match="another shape"):
        trainer.restore(other, None)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "optimizer-00000-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointInvalid, match="1 of 2"):
        trainer.restore(model, tmp_path / "half")
    assert distance(files(trainer, tmp_path / "after"), before) == 0.0


def test_a_directory_without_a_model_is_an_error_of_ours(tmp_path):
    with pytest.raises(CheckpointInvalid, match=r"config\.json"):
        VerlTrainer(SETTINGS, tmp_path)

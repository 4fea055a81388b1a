"""Tensors on their way to the disk: the format, digests, numbers that are not finite, a disk that is full."""

from hashlib import sha256

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from learner.errors import NonFiniteWeights  # noqa: E402
from learner.trainers import files  # noqa: E402
from learner.trainers.files import save_tensors  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def tensors():
    torch.manual_seed(3)
    return {
        "b": torch.randn(7, 5), "a": torch.randn(6, 4).t(), "low": torch.randn(33).bfloat16(),
        "half": torch.randn(2, 3).half(), "none": torch.zeros(0, 3), "ä name": torch.randn(9).bfloat16(),
        "step": torch.tensor(4.0),
    }  # fmt: skip


@pytest.fixture(params=[8, 1 << 24], ids=["many pieces", "one piece"])
def piece(request, monkeypatch):
    monkeypatch.setattr(files, "_PIECE", request.param)


def test_what_is_written_is_read_by_safetensors_itself_and_has_the_digest_that_is_told(tmp_path, tensors, piece):
    told = save_tensors(tensors, tmp_path / "x.safetensors")
    data = (tmp_path / "x.safetensors").read_bytes()
    assert (told.name, told.sha256, told.size) == ("x.safetensors", sha256(data).hexdigest(), len(data))
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("at", [0, 34])
def test_what_is_not_finite_leaves_no_file_wherever_it_stands(tmp_path, tensors, piece, value, at):
    tensors["b"].view(-1)[at] = value
    with pytest.raises(NonFiniteWeights, match="b"):
        save_tensors(tensors, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_of_the_disk_and_leaves_no_file(tmp_path, tensors):
    (tmp_path / "x.safetensors.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        save_tensors(tensors, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())

"""The plug-in's look at a checkpoint and the daemon's are two programs, since the plug-in runs where only vLLM is
installed: what one refuses the other refuses, and says the same of it."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from actors.ports.errors import CheckpointRefused
from adapters.engines import checkpoint as daemon
from adapters.engines.vllm_plugin.evolved_vllm import checkpoint as plugin
from tests.support import checkpoints

NAME = "model.layers.1.mlp.up_proj.weight"
MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Path:
    return checkpoints.write(tmp_path_factory.mktemp("served") / "a", 1)


@pytest.fixture
def version(tmp_path) -> Path:
    return checkpoints.write(tmp_path / "v", 2)


def looks(version: Path, served: Path, manifest: str = "") -> tuple[str, str]:
    """Why the daemon and the plug-in refuse it; empty if they do not."""
    try:
        daemon.validate(version, like=daemon.describe(served), manifest=manifest)
        ours = ""
    except CheckpointRefused as error:
        ours = str(error)
    check = plugin.Check(str(version), plugin.describe(plugin.open_checkpoint(str(served))), manifest)
    check.look()
    assert check.over
    return ours, check.reason


def settings(version: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = version / "config.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def weights(version: Path, header: bytes, data: bytes = b"\0" * 8) -> None:
    (version / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)


def manifest(version: Path, **of_first: object) -> None:
    """A manifest that says something else of its first file."""
    checkpoints.write_manifest(version)
    content = json.loads((version / MANIFEST).read_text())
    content["files"][0] |= of_first
    (version / MANIFEST).write_text(json.dumps(content))


def test_both_take_a_good_one_and_see_the_same_in_it(version, served):
    assert looks(version, served) == ("", ""), "without a manifest"
    checkpoints.write_manifest(version)
    assert looks(version, served, hashlib.sha256((version / MANIFEST).read_bytes()).hexdigest()) == ("", "")
    ours, theirs = daemon.open_checkpoint(version), plugin.open_checkpoint(str(version))
    assert {name: (spec.dtype, spec.shape) for name, spec in ours.tensors.items()} == plugin.describe(theirs).tensors
    assert all(np.array_equal(ours.array(name), tensor.data) for name, tensor in theirs.tensors.items())


def test_both_find_rope_theta_where_transformers_5_writes_it(version, served):
    settings(version, lambda config: config.update(rope_parameters={"rope_theta": config.pop("rope_theta")}))
    assert looks(version, served) == ("", "")
    settings(version, lambda config: config.update(rope_parameters={"rope_theta": 1.0}))
    assert all("rope_theta is 1.0, 10000.0 is served" in said for said in looks(version, served))


@pytest.mark.parametrize("key", daemon._SAME)
def test_both_compare_what_decides_the_computation(version, served, key):
    settings(version, lambda config: config.update({key: "other"}))
    assert all(f"{key} is other" in said for said in looks(version, served))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda v: checkpoints.spoil(v, "missing"), f"tensor {NAME} is missing"),
        (lambda v: checkpoints.spoil(v, "unknown"), "model.layers.9.mlp.up_proj.weight is not part of the model"),
        (lambda v: checkpoints.spoil(v, "shape"), f"tensor {NAME} has shape (95, 64), (96, 64) is served"),
        (lambda v: checkpoints.spoil(v, "dtype"), f"tensor {NAME} is F16, F32 is served"),
        (lambda v: checkpoints.spoil(v, "nan"), f"tensor {NAME} holds NaN or infinity"),
        (lambda v: checkpoints.spoil(v, "truncated"), "model.safetensors is truncated or no safetensors file"),
        (lambda v: checkpoints.spoil(v, "digest"), "model.safetensors does not have the sha256 of its manifest"),
        (lambda v: (v / "model.safetensors").unlink(), "holds no .safetensors file"),
        (lambda v: (v / "b.safetensors").write_bytes((v / "model.safetensors").read_bytes()), "is in two files"),
        (lambda v: (v / "config.json").unlink(), "config.json cannot be read"),
        (lambda v: (v / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda v: (v / "config.json").write_text("[]"), "config.json holds no JSON object"),
        (lambda v: manifest(v, name="../v/x"), "../v/x is in the manifest and not in the directory"),
        (lambda v: manifest(v, name="gone"), "gone is in the manifest and not in the directory"),
        (lambda v: manifest(v, name=""), "a file is in the manifest and not in the directory"),
        (lambda v: manifest(v, size=1), "its manifest says 1"),
        (lambda v: manifest(v, sha256="0"), "config.json does not have the sha256 of its manifest"),
        (lambda v: (v / MANIFEST).write_text("{"), "manifest.json cannot be read"),
        (lambda v: weights(v, b"[]"), "is truncated or no safetensors file"),
        (lambda v: weights(v, b"{"), "is truncated or no safetensors file"),
        (lambda v: weights(v, b'{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'), "needs bytes 0 to 8"),
        (lambda v: weights(v, b'{"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}'), "needs bytes 8"),
        (lambda v: weights(v, b'{"t": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}'), "'F99'"),
        (lambda v: weights(v, b'{"t": {"dtype": "F32", "shape": [2]}}'), "is truncated or no safetensors file"),
        (lambda v: weights(v, b'{"t": 1}'), "is truncated or no safetensors file"),
        (lambda v: (v / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}"), "header is longer"),
        (lambda v: (v / "model.safetensors").write_bytes(b"{}"), "is truncated or no safetensors file"),
    ],
)  # fmt: skip
def test_both_refuse_a_bad_one_for_the_same_reason(version, served, spoil, says):
    spoil(version)
    ours, theirs = looks(version, served)
    assert says in ours
    assert says in theirs


def test_both_want_the_manifest_that_was_judged(version, served):
    checkpoints.write_manifest(version)
    judged = hashlib.sha256((version / MANIFEST).read_bytes()).hexdigest()
    (version / MANIFEST).write_bytes((version / MANIFEST).read_bytes() + b"\n")
    assert all("is not the manifest that was judged" in said for said in looks(version, served, judged))
    (version / MANIFEST).unlink()
    assert all("manifest.json cannot be read" in said for said in looks(version, served, judged))


@pytest.mark.parametrize(
    ("kind", "bits", "good"),
    [
        ("BF16", 0xFF7F, True), ("BF16", 0x7F80, False), ("BF16", 0xFFC0, False),
        ("F16", 0xFBFF, True), ("F16", 0x7C00, False), ("F16", 0x7E00, False),
        ("F32", 0x7F7FFFFF, True), ("F32", 0x7F800000, False), ("F32", 0x7FC00000, False),
        ("F64", 0x7FEFFFFFFFFFFFFF, True), ("F64", 0x7FF0000000000000, False), ("I32", 0x7F800000, True),
    ],
)  # fmt: skip
def test_both_tell_numbers_from_what_is_none(tmp_path, kind, bits, good):
    size = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "F64": 8}[kind]
    header = json.dumps({"t": {"dtype": kind, "shape": [2], "data_offsets": [0, 2 * size]}}).encode()
    for name, number in (("a", 0), ("b", bits)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        weights(tmp_path / name, header, bytes(size) + number.to_bytes(size, "little"))
    assert [("holds NaN or infinity" not in said) for said in looks(tmp_path / "b", tmp_path / "a")] == [good, good]


def test_the_plug_in_knows_more_and_nothing_less():
    """What only engines have, and no version of ours: 8-bit floats, experts, sliding windows, quantization."""
    assert {name: plugin._TYPES.get(name) for name in daemon._TYPES} == daemon._TYPES
    assert plugin._TYPES.keys() - daemon._TYPES.keys() == {"F8_E4M3", "F8_E5M2"}
    assert set(plugin._SAME) - set(daemon._SAME) == {
        "num_experts", "num_experts_per_tok", "sliding_window", "use_sliding_window", "quantization_config",
    }  # fmt: skip


def test_weights_that_the_manifest_does_not_name_are_the_daemons_to_refuse(version, served):
    """It looks before any engine does; to that, a file more is a tensor in two files, or one that is not served."""
    checkpoints.write_manifest(version)
    (version / "extra.safetensors").write_bytes((version / "model.safetensors").read_bytes())
    ours, theirs = looks(version, served)
    assert "extra.safetensors is not in the manifest" in ours
    assert "is in two files" in theirs

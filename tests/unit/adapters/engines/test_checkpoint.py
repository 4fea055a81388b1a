"""What a version directory must be before an engine sees it."""

import hashlib
import json

import numpy as np
import pytest

from actors.ports.errors import CheckpointRefused
from adapters.engines.checkpoint import Served, describe, open_checkpoint, validate
from tests.support import checkpoints

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Served:
    return describe(checkpoints.write(tmp_path_factory.mktemp("served") / "a", 1))


@pytest.fixture
def version(tmp_path):
    return checkpoints.write(tmp_path / "v", 2)


def test_a_version_like_the_one_that_is_served_passes(version, served):
    checkpoints.write_manifest(version)
    checkpoint = validate(version, like=served)
    assert checkpoint.tensors[NAME].shape == (checkpoints.INNER, checkpoints.HIDDEN)
    assert checkpoint.array(NAME).dtype == np.float32


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("missing", f"tensor {NAME} is missing"),
        ("unknown", "model.layers.9.mlp.up_proj.weight is not part"),
        ("shape", rf"tensor {NAME} has shape \(95, 64\), \(96, 64\) is served"),
        ("dtype", f"tensor {NAME} is F16, F32 is served"),
        ("nan", f"tensor {NAME} holds NaN"),
        ("truncated", "model.safetensors is truncated"),
        ("config", "num_attention_heads is 4, 2 is served"),
    ],
)
def test_what_is_wrong_is_named(version, served, how, says):
    checkpoints.spoil(version, how)
    with pytest.raises(CheckpointRefused, match=says):
        validate(version, like=served)


def test_a_tied_head_is_refused_where_engines_would_reload_it_wrongly(version, served):
    checkpoints.spoil(version, "tied")
    with pytest.raises(CheckpointRefused, match="tied"):
        validate(version, allow_tied=False)


def test_a_changed_byte_does_not_have_the_digest_of_the_manifest(version, served):
    checkpoints.write_manifest(version)
    path = version / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointRefused, match="sha256"):
        validate(version, like=served)
    validate(version, like=served, digests=False)


def test_a_truncated_file_is_told_by_its_size(version):
    checkpoints.write_manifest(version)
    checkpoints.spoil(version, "truncated")
    with pytest.raises(CheckpointRefused, match="bytes, its manifest says"):
        validate(version)


@pytest.mark.parametrize("name", ["../a/model.safetensors", "gone.json", ""])
def test_a_manifest_that_names_what_is_not_in_the_directory_is_refused(version, name):
    (version / "manifest.json").write_text(json.dumps({"files": [{"name": name, "sha256": "", "size": 0}]}))
    with pytest.raises(CheckpointRefused, match="not in the directory"):
        validate(version)


def test_a_directory_without_weights_is_refused(tmp_path):
    with pytest.raises(CheckpointRefused, match=r"no \.safetensors file"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}',
        b'{"t": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}',
        b'{"t": {"dtype": "F32", "shape": [2]}}',
        b'{"t": 1}',
    ],
)
def test_a_malformed_header_is_refused(tmp_path, header):
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(CheckpointRefused, match="truncated or no safetensors file"):
        open_checkpoint(tmp_path)


def test_a_header_longer_than_the_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointRefused, match="truncated"):
        open_checkpoint(tmp_path)


def test_numbers_of_bfloat16_are_looked_at_though_numpy_has_no_such_type(tmp_path):
    header = b'{"t": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}'
    (tmp_path / "config.json").write_text("{}")

    def write(*bits: int) -> None:
        data = b"".join(value.to_bytes(2, "little") for value in bits)
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)

    write(0x3F80, 0xFF7F)  # 1.0 and the lowest finite number
    validate(tmp_path)
    write(0x3F80, 0x7F80)  # infinity
    with pytest.raises(CheckpointRefused, match="NaN or infinity"):
        validate(tmp_path)


def test_rope_theta_is_found_where_transformers_5_writes_it(version, served):
    config = json.loads((version / "config.json").read_text())
    theta = config.pop("rope_theta")
    (version / "config.json").write_text(json.dumps({**config, "rope_parameters": {"rope_theta": theta}}))
    validate(version, like=served)


def test_only_the_manifest_that_was_judged_is_loaded(version, served):
    checkpoints.write_manifest(version)
    path = version / "manifest.json"
    judged = hashlib.sha256(path.read_bytes()).hexdigest()
    validate(version, like=served, manifest=judged)
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(CheckpointRefused, match="not the manifest that was judged"):
        validate(version, like=served, manifest=judged)
    path.unlink()
    with pytest.raises(CheckpointRefused, match="cannot be read"):
        validate(version, like=served, manifest=judged)


def test_weights_that_the_manifest_does_not_name_are_refused(version, served):
    checkpoints.write_manifest(version)
    (version / "extra.safetensors").write_bytes((version / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointRefused, match=r"extra.safetensors is not in the manifest"):
        validate(version, like=served)

"""What a version directory must be before an engine sees it."""

import numpy as np
import pytest

from actors.ports.errors import CheckpointRefused
from adapters.engines.checkpoint import Served, describe, validate
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

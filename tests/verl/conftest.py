"""Fixtures of the verl suite; it runs in verl's own environment (`make test-verl`), on the CPU."""

import os
from importlib.util import find_spec

import pytest

from tests.verl import CPU_ENVIRONMENT

os.environ.update(CPU_ENVIRONMENT)
if find_spec("verl") is None:
    pytest.exit("tests/verl runs in verl's own environment: `make test-verl`", returncode=4)

from tests.support.patience import within
from tests.verl.rig import SETTINGS, batch, qwen, two_ranks


def pytest_collection_modifyitems(items):
    """Two ranks take half a minute to start on two idle cores, minutes on busy ones."""
    for item in items:
        item.add_marker(pytest.mark.timeout(within(400)))


@pytest.fixture(scope="session", autouse=True)
def _one_rank():
    """This process is a group of one rank, with one thread."""
    import torch

    from learner.trainers.verl.ranks import join

    torch.set_num_threads(1)
    join()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A small random model's directory; never written to."""
    return qwen(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def batch_file(tmp_path_factory):
    """One packed batch file that everybody reads."""
    path = tmp_path_factory.mktemp("batch") / "batch.safetensors"
    batch(seed=7).save(path)
    return path


@pytest.fixture(scope="session")
def two(tmp_path_factory, model, batch_file):
    """What two ranks did, in one run because a start takes half a minute: directory and result."""
    directory = tmp_path_factory.mktemp("two")
    return directory, two_ranks("everything", directory, SETTINGS, model=str(model), data=str(batch_file))

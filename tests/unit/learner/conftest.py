"""Fixtures of the learner's tests."""

import pytest

from tests.unit.learner.maker import tiny_model


@pytest.fixture(scope="session")
def warm_start(tmp_path_factory):
    """A tiny random model's directory; never written to."""
    pytest.importorskip("torch").set_num_threads(1)
    return tiny_model(tmp_path_factory.mktemp("warm"))

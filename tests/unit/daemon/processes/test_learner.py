"""The learner's process: what is said when its work cannot begin."""

from pathlib import Path

import pytest

from actors.system import runtime
from daemon.errors import StartFailed
from daemon.processes import learner
from daemon.settings.reading import load
from learner.errors import CheckpointInvalid
from learner.metrics import LearnerMetrics


class _Bus:
    async def aclose(self) -> None:
        pass


def test_what_fails_with_every_attempt_is_told_and_no_failure_of_the_attempts(tmp_path: Path, monkeypatch) -> None:
    tried = []

    async def fails(*_, registry, **__) -> None:
        tried.append(LearnerMetrics(registry))
        raise CheckpointInvalid("learner/v000005: cut off")

    async def no_broker(*_) -> _Bus:
        return _Bus()

    monkeypatch.setattr(learner, "open_bus", no_broker)
    monkeypatch.setattr(learner, "run", fails)
    config = load(None, [f"state_dir={tmp_path}"])
    with pytest.raises(StartFailed, match=r"keeps failing: learner/v000005: cut off"):
        runtime.run(lambda host: learner._serve(config, None, host))
    assert len(tried) == 4

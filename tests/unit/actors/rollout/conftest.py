"""Rounds as they come, one by one."""

import pytest

from actors.rollout import rollout


@pytest.fixture(autouse=True)
def no_round_follows_one_that_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "_AGREEING", 0)

import pytest

from actors.deployment import swapper


@pytest.fixture(autouse=True)
def no_tap_looks_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapper, "_CLOSE_SECONDS", 0.0)

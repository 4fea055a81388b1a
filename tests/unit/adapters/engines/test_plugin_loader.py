"""What one worker knows of its weights, without a vLLM: waits that end, and architectures that it was shown with."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.engines.vllm_plugin.evolved_vllm import checkpoint, loader
from tests.support import checkpoints


@pytest.fixture
def worker(tmp_path: Path) -> SimpleNamespace:
    served = checkpoints.write(tmp_path / "a", 1)
    config = SimpleNamespace(model=str(served), revision=None)
    return SimpleNamespace(model_runner=None, vllm_config=SimpleNamespace(model_config=config))


def test_a_load_does_not_wait_for_a_check_that_never_ends(worker, tmp_path, monkeypatch):
    hung, began = threading.Event(), threading.Event()

    def finite(check: checkpoint.Check, _: object) -> None:
        began.set()
        hung.wait(30.0)

    monkeypatch.setattr(checkpoint.Check, "_finite", finite)
    monkeypatch.setattr(loader, "_READ_ON", 0.2)
    version = checkpoints.write(tmp_path / "b", 2)
    own = loader.Loader(worker)
    assert own.prepare(str(version), 1)["state"] == "checking"
    assert began.wait(10.0)
    asked = time.monotonic()
    answer = own.load(str(version), 1, False)
    hung.set()
    assert answer["state"] == "refused"
    assert "still being read" in answer["reason"]
    assert time.monotonic() - asked < 10.0


def test_who_asks_again_finds_the_check_further_on(worker, tmp_path, monkeypatch):
    go, begun = threading.Event(), list[str]()

    def finite(check: checkpoint.Check, _: object) -> None:
        begun.append(check.path)
        go.wait(30.0)

    monkeypatch.setattr(checkpoint.Check, "_finite", finite)
    version, other = (str(checkpoints.write(tmp_path / name, 2)) for name in "bc")
    own = loader.Loader(worker)
    for _ in range(3):
        assert own.prepare(version, 1)["state"] == "checking"
    first = own._check
    go.set()
    assert first is not None
    first.join(10.0)
    assert own.prepare(version, 1)["state"] == "ready"
    assert begun == [version], "read once"
    (Path(version) / "config.json").touch()
    own.prepare(version, 1)
    assert own._check is not first, "what was changed since is read again"
    own.prepare(other, 1)
    assert own._check is not None
    assert own._check.path == other


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, ""),
        ({"architectures": ["Qwen2ForCausalLM", "MixtralForCausalLM"]}, "MixtralForCausalLM were never tried"),
        ({"architectures": []}, "an architecture without a name"),
        ({"architectures": "Qwen2ForCausalLM"}, "an architecture without a name"),
        ({}, "an architecture without a name"),
    ],
)
def test_an_architecture_that_was_never_swapped_is_named(config: dict, named: str):
    told = loader.untried(config)
    assert named in told
    assert bool(told) == bool(named)


def test_the_log_of_the_engine_warns_once(worker, tmp_path, caplog):
    path = tmp_path / "a" / "config.json"
    path.write_text(path.read_text().replace("Qwen2ForCausalLM", "GemmaForCausalLM"))
    own = loader.Loader(worker)
    for number in range(2):
        own.prepare(str(checkpoints.write(tmp_path / f"v{number}", 2)), 1)
    assert sum("GemmaForCausalLM" in record.getMessage() for record in caplog.records) == 1

"""Real vLLM servers on the CPU, from an environment of their own (`make test-vllm` builds it).

A start keeps both cores busy for a minute, so each server starts when the first test wants it, one after the other.
Tests that want the same come together, and what none of the later ones wants is stopped.
"""

import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.support import checkpoints
from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.process import Process

PYTHON = Path(os.environ.get("EVOLVED_VLLM_PYTHON", ".venv-vllm/bin/python"))
MODEL = Path("daemon/demo/warmstart")
KEY = "the-key-of-the-twin"
_SMALL = ("--served-model-name", "tiny", "--max-model-len", "1024", "--kv-cache-memory-bytes", str(64 << 20))
_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
_START_SECONDS, _TEST_SECONDS = 600.0, 300.0
_SECOND_CORE = {"VLLM_CPU_OMP_THREADS_BIND": "1"} if (os.cpu_count() or 1) > 1 else {}
"""Left alone, every worker takes the first core. One that is busy polls there without end, and the kernel let another
wait 39 s for its turn."""
_IN_TURN = ("vllm", "tied", "tiny", "twin")
"""Tests come in the order of the servers that they want, `tiny` and another for some."""
_WITHOUT = {"vllm": (), "tied": ("vllm",), "tiny": ("vllm",), "twin": ("vllm", "tied")}
"""Servers that nobody wants any more when one starts."""


class Fleet:
    """The servers by name."""

    def __init__(self, directory: Path, versions: Path) -> None:
        self._directory, self._versions = directory, versions
        self._running: dict[str, tuple[str, Process]] = {}

    def _start(self, name: str) -> None:
        for other in _WITHOUT[name]:
            self._stop(other)
        port = free_port()
        command, extra = self._command(name, port)
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH") if key in os.environ}
        env = kept | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"} | extra
        process, url = Process(command, self._directory / f"{name}.log", env=env), f"http://127.0.0.1:{port}"
        self._running[name] = url, process
        process.until_answers(f"{url}/health", _START_SECONDS)

    def _command(self, name: str, port: int) -> tuple[list[str], dict[str, str]]:
        ours = [sys.executable, "-m", "daemon.cli", "engine", "--python", str(PYTHON), "--port", str(port)]
        bare = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
        # The contract's log-probs are those at temperature 1: the launcher's default is what sampling really used.
        raw = ("--logprobs-mode", "raw_logprobs")
        match name:
            case "vllm":  # as somebody runs it who does not know the plug-in
                options = ("--enable-scale-out", "--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill")
                extra = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_PLUGINS": ""}
                return [*bare, "--model", str(MODEL), *options, *_TOOLS, *_SMALL], extra
            case "tiny":
                options = ("--max-num-seqs", "32", *_TOOLS, *_SMALL, *raw)
                return [*ours, "--vllm", str(self._versions / "a"), *options], {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
            case "twin":
                options = ("--max-num-seqs", "32", *_SMALL, *raw)
                return [*ours, "--vllm", str(self._versions / "a"), *options], {"VLLM_API_KEY": KEY, **_SECOND_CORE}
            case "tied":
                return [*ours, "--vllm", str(self._versions / "tied-c"), *_SMALL, *raw], {}
            case _:
                raise ValueError(name)

    def url(self, name: str) -> str:
        """Base URL of `name`, which answers."""
        if name not in self._running:
            self._start(name)
        return self._running[name][0]

    def launcher(self, name: str) -> int:
        """Process id of what was started as `name`."""
        return self._running[name][1].pid

    def _stop(self, name: str) -> None:
        if name in self._running:
            self._running.pop(name)[1].stop()

    def stop(self) -> None:
        for name in list(self._running):
            self._stop(name)


@pytest.fixture(scope="session")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions of one architecture. The heads of a and c equal their embeddings; tied-a and tied-c are the same models
    with the head left out. b and scripted have heads of their own."""
    directory = tmp_path_factory.mktemp("versions")
    for name, seed in (("a", 1), ("c", 4)):
        checkpoints.tie(checkpoints.write(directory / name, seed), written_out=True)
        checkpoints.tie(checkpoints.write(directory / f"tied-{name}", seed))
    checkpoints.write(directory / "b", 2)
    checkpoints.write(directory / "scripted", 3, scripted=True)
    return directory


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, versions: Path) -> Iterator[Fleet]:
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there: run `make test-vllm`, which builds it")
    fleet = Fleet(tmp_path_factory.mktemp("vllm"), versions)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def vllm(fleet: Fleet) -> str:
    """Base URL of a server with the demo's warm start and without the plug-in; its development endpoints are open."""
    return fleet.url("vllm")


Greedy = tuple[list[int], list[float]]
"""Tokens and log-probs of a greedy answer."""


def greedy(url: str) -> list[Greedy]:
    """What a server says to some prompts at temperature 0, token by token."""
    answers: list[Greedy] = []
    for prompt in ([65, 66, 67], [10, 20, 30, 40, 50, 60], list(range(5, 205)), [7] * 40):
        body = {
            "model": "tiny", "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "return_token_ids": True,
        }  # fmt: skip
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=within())
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        answers.append((choice["token_ids"], choice["logprobs"]["token_logprobs"]))
    return answers


class Started(msgspec.Struct, frozen=True):
    """A server with the plug-in, started through `evolved engine --vllm`."""

    url: str
    fresh: list[Greedy]
    """What it said before anything was swapped: a fresh server's greedy answers."""


@pytest.fixture(scope="session")
def tiny(fleet: Fleet) -> Started:
    """It started with version a."""
    url = fleet.url("tiny")
    return Started(url, greedy(url))


@pytest.fixture(scope="session")
def twin(fleet: Fleet) -> str:
    """Base URL of one that was started like `tiny`, and wants to be shown `KEY`."""
    return fleet.url("twin")


@pytest.fixture(scope="session")
def tied(fleet: Fleet) -> Started:
    """It started with version tied-c, whose head shares the embeddings."""
    url = fleet.url("tied")
    return Started(url, greedy(url))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(within(2 * _START_SECONDS + _TEST_SECONDS)))
    turns = {item: _turn(getattr(item, "fixturenames", ())) for item in ours}
    items.sort(key=lambda item: turns.get(item, 0))  # stable: the order of the files otherwise


def _turn(wanted: Collection[str]) -> int:
    for name in ("twin", "vllm", "tied"):
        if name in wanted:
            return _IN_TURN.index(name)
    return _IN_TURN.index("tiny")

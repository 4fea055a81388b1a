"""Real vLLM servers on the CPU, from an environment of their own (`make test-vllm` builds it).

A server needs half a minute or more to start, so each runs once for all suites, and those that the chosen tests need
start together.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.support import checkpoints
from tests.support.ports import free_port

PYTHON = Path(os.environ.get("EVOLVED_VLLM_PYTHON", ".venv-vllm/bin/python"))
MODEL = Path("daemon/demo/warmstart")
KEY = "the-key-of-the-twin"
_SMALL = ("--max-model-len", "1024", "--kv-cache-memory-bytes", str(64 << 20))
_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
_BARE = ("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill", *_SMALL)
_START_SECONDS = 600.0
_SECOND_CORE = {"VLLM_CPU_OMP_THREADS_BIND": "1"} if (os.cpu_count() or 1) > 1 else {}
"""Left alone, every worker takes the first core. One that is busy polls there without end, and the kernel let another
wait 39 s for its turn."""


class Fleet:
    """The servers by name, each with its URL, its process and its log."""

    def __init__(self, directory: Path, versions: Path) -> None:
        self._directory, self._versions = directory, versions
        self._running: dict[str, tuple[str, subprocess.Popen[bytes], Path]] = {}

    def start(self, name: str) -> None:
        """Start the server `name`; does not wait for it."""
        port, log = free_port(), self._directory / f"{name}.log"
        command, extra = self._command(name, port)
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH") if key in os.environ}
        env = kept | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"} | extra
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._running[name] = (f"http://127.0.0.1:{port}", process, log)

    def _command(self, name: str, port: int) -> tuple[list[str], dict[str, str]]:
        ours = [sys.executable, "-m", "daemon.cli", "engine", "--python", str(PYTHON), "--port", str(port)]
        bare = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
        # The contract's log-probs are those at temperature 1: the launcher's default is what sampling really used.
        raw = ("--logprobs-mode", "raw_logprobs")
        match name:
            case "vllm" | "desk":  # the first as somebody runs it who does not know the plug-in
                options = ("--served-model-name", "desk", "--enable-scale-out", *_TOOLS, *_BARE)
                extra = {"VLLM_PLUGINS": ""} if name == "vllm" else {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
                return [*bare, "--model", str(MODEL), *options], {"VLLM_SERVER_DEV_MODE": "1"} | extra
            case "tiny" | "twin":
                extra = {"VLLM_API_KEY": KEY, **_SECOND_CORE} if name == "twin" else {}
                options = ("--served-model-name", "tiny", "--max-num-seqs", "32", *_TOOLS, *_SMALL, *raw)
                return [*ours, "--vllm", str(self._versions / "a"), *options], extra
            case "tied":
                options = ("--served-model-name", "tiny", *_SMALL, *raw)
                return [*ours, "--vllm", str(self._versions / "tied-c"), *options], {}
            case _:
                raise ValueError(name)

    def url(self, name: str) -> str:
        """Base URL of `name`, once it answers."""
        if name not in self._running:
            self.start(name)
        url, process, log = self._running[name]
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            try:
                if httpx.get(f"{url}/health").status_code == 200:
                    return url
            except httpx.TransportError:
                time.sleep(0.5)
        return pytest.fail(f"the vLLM `{name}` did not come up:\n{log.read_text(errors='replace')[-3000:]}")

    def launcher(self, name: str) -> int:
        """Process id of what was started as `name`."""
        return self._running[name][1].pid

    def stop(self) -> None:
        for _, process, _ in self._running.values():
            process.terminate()
        for _, process, _ in self._running.values():
            try:
                process.wait(60)  # longer than `evolved engine` gives vLLM
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    try:
        for name in ("tiny", "vllm", "desk", "tied", "twin"):
            if name in wanted:
                fleet.start(name)
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="session")
def vllm(fleet: Fleet) -> str:
    """Base URL of a server with the demo's warm start and without the plug-in; its development endpoints are open."""
    return fleet.url("vllm")


@pytest.fixture(scope="session")
def desk(fleet: Fleet) -> str:
    """Base URL of the same with the plug-in; it stores responses."""
    return fleet.url("desk")


class Greedy(msgspec.Struct, frozen=True):
    """A greedy answer."""

    ids: list[int]
    logprobs: list[float]


def greedy(url: str, model: str = "tiny") -> list[Greedy]:
    """What a server says to some prompts at temperature 0, token by token."""
    answers: list[Greedy] = []
    for prompt in ([65, 66, 67], [10, 20, 30, 40, 50, 60], list(range(5, 205)), [7] * 40):
        body = {
            "model": model, "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "return_token_ids": True,
        }  # fmt: skip
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        answers.append(Greedy(choice["token_ids"], choice["logprobs"]["token_logprobs"]))
    return answers


class Launched(msgspec.Struct, frozen=True):
    """A server, and the process id of the `evolved engine` that started it."""

    url: str
    launcher: int


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
def twin(fleet: Fleet) -> Launched:
    """One that was started like `tiny`, and wants to be shown `KEY`."""
    return Launched(fleet.url("twin"), fleet.launcher("twin"))


@pytest.fixture(scope="session")
def tied(fleet: Fleet) -> Started:
    """It started with version tied-c, whose head shares the embeddings."""
    url = fleet.url("tied")
    return Started(url, greedy(url))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))  # the first test waits for the servers

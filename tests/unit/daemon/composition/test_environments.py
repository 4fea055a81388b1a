"""The sandbox's environment from the settings, its figures, and `evolved environments list, check and serve`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry

from actors.ports.errors import EnvironmentFailed
from adapters.environments.http.client import HttpEnvironment
from adapters.environments.travel import TravelDesk
from adapters.environments.workers import WorkerEnvironment
from adapters.graders.llm import anchored
from daemon.cli.main import main
from daemon.composition.environments import build_environment, sandbox_environment
from daemon.errors import ConfigError
from daemon.settings.reading import load
from daemon.tap.keys import add_key
from tests.benchmarks.report import await_port
from tests.support.ports import free_port

ROOT = Path(__file__).parents[4]
TROUBLE = "tests.support.troublesome:Troublesome"


def test_workers_of_the_settings_are_processes_whose_figures_are_metrics():
    registry = CollectorRegistry()
    environment = sandbox_environment(load(None, ["sandbox.environment=travel", "sandbox.workers=1"]).sandbox, registry)
    assert isinstance(environment, WorkerEnvironment)

    async def play() -> None:
        episode = await environment.reset(environment.sample(0, "train", None))
        name = "evolved_environment_workers"
        assert registry.get_sample_value(f"{name}_instances") == 1
        await episode.aclose()
        assert registry.get_sample_value(f"{name}_total", {"what": "closed"}) == 1
        assert registry.get_sample_value(f"{name}_total", {"what": "deaths"}) == 0
        await environment.aclose()

    anyio.run(play)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [("tarvel", {}, "tarvel"), ("travel", {"colour": 1}, "colour"), (TROUBLE, {"bad": "build"}, "no data")],
)
def test_what_cannot_be_built_is_a_config_error(name: str, options: dict[str, str], words: str, workers: int):
    with pytest.raises(ConfigError, match=words):
        build_environment(name, options, workers)


def test_a_grader_that_compares_with_references_is_refused_where_there_are_none():
    grader = anchored(url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(ConfigError, match=r'sandbox.environment = .live. .* Set sandbox.grader = "open"'):
        sandbox_environment(load(None, ["sandbox.environment=travel"]).sandbox, CollectorRegistry(), None, grader)


def test_check_finds_nothing_wrong_with_the_desk(capsys: pytest.CaptureFixture[str]):
    assert main(["environments", "check", "travel", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert len(checks) == 8
    assert all(one["problem"] == "" for one in checks)


def test_check_says_what_is_wrong(capsys: pytest.CaptureFixture[str]):
    assert main(["environments", "check", TROUBLE, "--workers", "1", "--json"]) == 1
    problems = {one["check"]: one["problem"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert "origin heldout" in problems["sample"]
    assert "not stopped" in problems["end and evaluation"]
    assert problems["reset"] == ""
    assert main(["environments", "check", "nothere"]) == 2


def test_a_served_environment_wants_a_key_of_its_scope_and_ends_on_sigterm(tmp_path: Path):
    keys, file = tmp_path / "keys" / "keys.json", tmp_path / "key"
    text, _ = add_key(keys, tenant="lab", scope="environment", now=0.0)
    other, _ = add_key(keys, tenant="lab", scope="agent", now=0.0)
    file.write_text(text)
    port = free_port()
    server = subprocess.Popen(
        [
            sys.executable, "-m", "daemon.cli", "environments", "--set", f"state_dir={tmp_path}", "serve",
            "travel", "--require-key", "--workers", "1", "--port", str(port),
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        await_port(port)
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/healthz").text == "OK"
        for headers in ({}, {"x-evolved-key": other}):
            refused = httpx.post(f"{url}/sample", json={"params": {"seed": 0}}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["kind"]) == (401, "key")

        async def play() -> None:
            environment = HttpEnvironment(url, "travel", key_file=str(file))
            task = environment.sample(0, "train", "A")
            assert task == TravelDesk().sample(0, "train", "A")
            episode = await environment.reset(task)
            assert (await episode.step((), "words")).text == '{"error": "bad call"}'
            await episode.aclose()
            await environment.aclose()
            keyless = HttpEnvironment(url, "travel")
            with pytest.raises(EnvironmentFailed, match="key_file"):
                await keyless.reset(task)
            await keyless.aclose()

        anyio.run(play)
        figures = httpx.get(f"{url}/metrics", headers={"x-evolved-key": text}).text
        assert 'evolved_environment_http_total{what="created"} 1.0' in figures
    finally:
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=30)
    assert server.returncode == 0
    assert text not in said
    assert "Traceback" not in said

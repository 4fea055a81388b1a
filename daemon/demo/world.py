"""One machine, all of evolved: the directory, the configuration and the processes of a demo run."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import msgspec
import tomli_w

from daemon.composition.values import TASKS_A_SEED
from daemon.demo.agents import AgentSettings
from daemon.demo.ports import free_ports
from daemon.demo.processes import Child, module, wait_until
from daemon.demo.worlds import WORLDS
from daemon.settings import toml
from daemon.settings.reading import load
from daemon.settings.tables import Config

TOY: dict[str, Any] = {
    "profile": "toy",
    "train": {"lr": 1e-3, "kl_coef": 0.0, "mini_batches": 2, "replay_share": 0.0},
    "gate": {"every": 3, "tasks": 32, "margin": 0.1, "forgetting_margin": 0.25, "error": 0.2},
    "trial": {"minutes": 1.0},
    "keep": {"versions": 24},
}
"""A model of half a million parameters learns at a rate that would ruin a real one, and minutes stand for days."""
START_SECONDS = 300.0
"""That a child has to answer, on a machine as slow as may be. One that ends is told of at once."""
STOP_SECONDS = 40.0
"""That a child has to end: more than the daemon (10 s) and the learner (30 s) drain, with their clean-up after that."""


class World:
    """The processes of one demo run in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        overrides: dict[str, Any],
        agents: dict[str, Any],
        world: str = "travel",
        vllm: Path | None = None,
    ) -> None:
        """
        Args:
            world: a key of `WORLDS`.
            vllm: interpreter of an environment with vLLM, whose engines serve then; none: the embedded ones do.
        """
        self.directory, self._vllm = directory, vllm
        self._model = WORLDS[world].warm_start
        if directory.exists():
            shutil.rmtree(directory)
        (directory / "logs").mkdir(parents=True)
        serving, shadow, tap, tap_admin, control, learner = free_ports(6)
        self.drift = directory / "desk.json"
        self.journal = directory / "agents.jsonl"
        here = {
            "state_dir": str(directory / "state"),
            "seed": seed,
            "model": {"path": str(self._model)},
            "engines": {"url": f"http://127.0.0.1:{serving}"},
            "shadow": {"url": f"http://127.0.0.1:{shadow}"},
            "tap": {"listen": f"127.0.0.1:{tap}", "admin": f"127.0.0.1:{tap_admin}"},
            "control": {"listen": f"127.0.0.1:{control}"},
            "train": {"metrics": f"127.0.0.1:{learner}"},
            "sandbox": {"options": {"drift_file": str(self.drift)}},
        }
        table = toml.merge(toml.merge(toml.merge(TOY, WORLDS[world].settings), here), overrides)
        self.config_path = directory / "config.toml"
        self.config_path.write_text(tomli_w.dumps(table), encoding="utf-8")
        self.config: Config = load(self.config_path)
        self.tap_url = f"http://127.0.0.1:{tap}"
        self.control_url = f"http://127.0.0.1:{control}"
        self.serving_url, self.shadow_url = f"http://127.0.0.1:{serving}", f"http://127.0.0.1:{shadow}"
        self._employed = AgentSettings(
            tap=self.tap_url,
            journal=str(self.journal),
            seed=seed,
            first_task=seed * TASKS_A_SEED,
            world=world,
            drift=str(self.drift),
            **agents,
        )
        config = ["--config", str(self.config_path)]
        self.broker = self._child("broker", module("daemon.cli", "broker", *config))
        # On a CPU every vLLM binds itself to the first core, unless it is told of another.
        self.serving = self._child("serving", self._engine(serving), extra={"VLLM_CPU_OMP_THREADS_BIND": "0"})
        second = str(min(1, (os.cpu_count() or 1) - 1))
        self.shadow = self._child("shadow", self._engine(shadow), nice=2, extra={"VLLM_CPU_OMP_THREADS_BIND": second})
        self.tap = self._child("tap", module("daemon.cli", "tap", *config))
        self.daemon = self._child("daemon", module("daemon.cli", "run", *config))
        self.learner = self._child(
            "learner", module("daemon.cli", "learner", *config), nice=2, extra={"OMP_NUM_THREADS": "1"}
        )
        self.agents = self._child("agents", module("daemon.demo.agents", msgspec.json.encode(self._employed).decode()))
        self.children = [
            self.broker, self.serving, self.shadow, self.tap, self.daemon, self.learner, self.agents,
        ]  # fmt: skip

    def _child(self, name: str, command: list[str], nice: int = 0, extra: dict[str, str] | None = None) -> Child:
        return Child(name, command, self.directory / "logs" / f"{name}.log", nice=nice, extra=extra)

    def _engine(self, port: int) -> list[str]:
        if self._vllm is not None:
            return module(
                "daemon.cli", "engine", "--vllm", str(self._model), "--python", str(self._vllm), "--port", str(port),
                "--served-model-name", "desk", "--max-model-len", "1024", "--max-num-seqs", "64",
                "--kv-cache-memory-bytes", str(1 << 27), "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
            )  # fmt: skip
        return module(
            "daemon.cli", "engine", "--model", str(self._model), "--port", str(port), "--served-model-name", "desk",
            "--threads", "1", "--dev-mode",
        )  # fmt: skip

    def start_engines(self) -> None:
        """Start broker and engines, and wait until they answer: nothing learns yet.

        Raises:
            StartFailed: names the process and its log.
        """
        for child in (self.broker, self.serving, self.shadow):
            child.start()
        self._wait((self.serving, f"{self.serving_url}/health"), (self.shadow, f"{self.shadow_url}/health"))

    def start(self) -> None:
        """Start what is missing but the agents, and wait until it answers.

        Raises:
            StartFailed: names the process and its log.
        """
        if self.serving.pid is None:
            self.start_engines()
        for child in (self.tap, self.daemon, self.learner):
            child.start()
        self._wait((self.tap, f"{self.tap_url}/health"), (self.daemon, f"{self.control_url}/api/status"))
        versions = self.config.state / "versions"
        wait_until(lambda: (versions / "v000000" / "manifest.json").exists(), self.learner, START_SECONDS)

    @staticmethod
    def _wait(*places: tuple[Child, str]) -> None:
        for child, url in places:
            wait_until(lambda url=url: answers(url), child, START_SECONDS)

    def check(self) -> None:
        for child in self.children:
            child.check()

    def stop(self) -> None:
        with contextlib.ExitStack() as stack:  # one that does not go keeps none of the others
            for child in (self.broker, self.serving, self.shadow, self.tap, self.daemon, self.learner, self.agents):
                stack.callback(child.stop, STOP_SECONDS)

    def get(self, path: str) -> Any:
        try:
            answer = httpx.get(self.control_url + path, timeout=5.0)
            return answer.json() if answer.status_code == 200 else None
        except (httpx.TransportError, ValueError):
            return None

    def post(self, path: str, body: dict[str, Any]) -> bool:
        try:
            return httpx.post(self.control_url + path, json=body, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False


def answers(url: str) -> bool:
    """Whether GET `url` is answered with 200."""
    try:
        return httpx.get(url, timeout=2.0).status_code == 200
    except httpx.TransportError:
        return False

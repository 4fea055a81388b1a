"""A small installation of all of evolved, with what the pages' commands need to find: versions, lessons, tasks, files.

It is the demo's: broker, two embedded engines, tap, daemon, learner, agents on the travel desk. The agents work until
two versions have served; then learning is frozen, so that the commands have the machine for themselves. Words in
capitals in a command stand for something of the reader's own: here, of this installation.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon.demo.world import World
from tests.docs.blocks import ROOT
from tests.support.patience import wait_until, within
from tests.support.process import Process

_OVERRIDES: dict[str, Any] = {
    # Commands are shown on a running installation; whether what it learned is good is other suites' question.
    "gate": {"every": 1, "tasks": 16, "margin": 0.3},
    "train": {"groups": 4, "group_size": 4},
    "apis": {"allow_hosts": ["127.0.0.0/8"]},
}
_START_SECONDS, _BLOCK_SECONDS = 300.0, 120.0


class Installation:
    """Runs in `directory` until `stop()`."""

    def __init__(self, directory: Path) -> None:
        self._world = World(
            directory / "world", seed=0, overrides=_OVERRIDES, agents={"agents": 4, "feedback_delay": 0.2}
        )
        self._bin = directory / "bin"
        self._bin.mkdir()
        for name, module in (("evolved", "-m daemon.cli "), ("python", "")):
            path = self._bin / name
            path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {module}"$@"\n')
            path.chmod(0o755)
        self._words: dict[str, str] = {}

    def start(self) -> None:
        """Start all of it, and wait until there is something to look at."""
        world = self._world
        world.start()
        world.agents.start()
        self._until(lambda: len(self._served()) >= 2, "two versions that have served", self._help)
        self._until(lambda: bool(self._lessons()), "a lesson")
        world.agents.stop(within())
        self._calm()
        self._words = self._found()

    def stop(self) -> None:
        self._world.stop()

    def place(self, directory: Path) -> None:
        """Put into `directory` what a reader would have there."""
        shutil.copy(self._world.config_path, directory / "config.toml")

    def run(self, script: str, directory: Path) -> tuple[int, str]:
        """Carry a block out in `directory`, to the first command that fails; status, and output that names each."""
        if "evolved rollback" in script:
            self._ahead()
        env = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR", "VIRTUAL_ENV") if name in os.environ}
        env |= {"PATH": f"{self._bin}:{os.environ['PATH']}", "EVOLVED_CONFIG": "config.toml", "OMP_NUM_THREADS": "1"}
        env |= {"EVOLVED_URL": self._world.control_url, "TERM": "dumb", "COLUMNS": "160"}
        log = self._bin / "block.log"
        log.unlink(missing_ok=True)
        command = ["bash", "-euxo", "pipefail", "-c", self.adapted(script)]
        with Process(command, log, cwd=directory, env=env) as block:
            code = block.wait(_BLOCK_SECONDS)
        if "evolved thaw" in script:
            self._calm()
        return code, log.read_text(errors="replace")

    def adapted(self, script: str) -> str:
        """`script` with this installation's ports and names in it."""
        config, world = self._world.config, self._world
        ports = {8000: world.serving_url, 8001: world.shadow_url, 8080: world.tap_url, 8090: world.control_url}
        for port, url in ports.items():
            script = re.sub(rf"(127\.0\.0\.1|localhost):{port}\b", url.removeprefix("http://"), script)
        script = script.replace("127.0.0.1:8081", config.tap.admin).replace("my-model", "desk")
        return re.sub(r"\b[A-Z][A-Z_]+\b", lambda word: self._words.get(word[0], word[0]), script)

    def _found(self) -> dict[str, str]:
        """What the words in capitals stand for."""
        state = self._world.config.state
        admitted = self._call("keys", "add", "--tenant", "acme").split()[-1]
        trajectories = self._get("/api/trajectories")["trajectories"]
        response = next(
            json.loads(line)["id"]
            for line in self._world.journal.read_text().splitlines()
            if json.loads(line)["event"] == "response"
        )
        return {
            "STATE_DIR": str(state),
            "LESSON": self._lessons()[0]["lesson"]["id"],
            "TRAJECTORY": trajectories[0]["id"],
            "RESPONSE": response,
            "VERSION": str(self._served()[-1]),
            "KEY": admitted.removeprefix("evk_")[:12],
        }

    def _calm(self) -> None:
        assert self._world.post("/api/freeze", {"reason": "there is enough to look at"})

    def _help(self, version: int = 0) -> None:
        """Bring in by hand what the gate is still thinking about: the commands need versions, not good ones."""
        newest = version or self._get("/api/status")["trained"]
        if version or (newest and newest not in self._served()):
            self._world.post("/api/promote", {"version": newest, "force": True, "reason": "documentation's tests"})

    def _ahead(self) -> None:
        """See that there is a version to go back to: pages before may have gone back as far as one can."""
        if self._behind():
            return
        assert self._world.post("/api/thaw", {"reason": "documentation's tests"})  # frozen, nothing comes in
        bad = self._bad(self._get("/api/status")["fleet"])
        self._help(max(version for version in self._served() if version != bad))
        self._until(lambda: bool(self._behind()), "a version to go back to")
        self._calm()

    def _behind(self) -> list[int]:
        """What a rollback could go back to now."""
        fleet = self._get("/api/status")["fleet"]
        return [version for version in fleet["good"] if version not in (*fleet["banned"], self._bad(fleet))]

    @staticmethod
    def _bad(fleet: dict[str, Any]) -> int | None:
        """What a rollback would take away."""
        return fleet["canary"] if fleet["canary_engine"] else fleet["stable"]

    def _served(self) -> list[int]:
        return [one["version"] for one in self._get("/api/success")["swaps"] if one["result"] == "swapped"]

    def _lessons(self) -> list[dict[str, Any]]:
        return list(self._get("/api/experience"))

    def _get(self, path: str) -> Any:
        found: list[Any] = []

        def answers() -> bool:
            found.append(self._world.get(path))
            return found[-1] is not None

        wait_until(answers, f"an answer at {path}", every=0.5)
        return found[-1]

    def _call(self, *arguments: str) -> str:
        command = [str(self._bin / "evolved"), *arguments, "--config", str(self._world.config_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _until(self, there: Callable[[], bool], what: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        def looked() -> bool:
            self._world.check()
            found = there()
            if not found:
                meanwhile()
            return found

        wait_until(looked, what, _START_SECONDS, every=2.0)

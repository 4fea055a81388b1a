"""A clone in which mutants are tried, one after the other."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutations import Mutant, mutated
from tests.mutants.places import ROOMS, ROOT, sources, tests
from tests.support.patience import Late
from tests.support.process import Process

_TRIES_SECONDS = 900.0
"""A mutant that makes its room's tests hang for so long is found; the slowest room's take some two minutes."""
_WEATHER = ("-m", "tests.simulation.weather", "--cells", "1", "--jobs", "1")
_PYTEST = ("-m", "pytest", "-x", "-q", "--timeout", "60", "--timeout-method", "thread")
"""By a thread, which ends the process: an event loop may swallow what a signal raises."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Clone:
    """A commit of this repository under `directory`, with an environment of its own."""

    def __init__(self, directory: Path, commit: str) -> None:
        self.tree, self._log = directory / "tree", directory / "log"
        self.commit = _said("git", "rev-parse", commit, where=ROOT)
        if self.tree.exists() and _said("git", "rev-parse", "HEAD", where=self.tree) != self.commit:
            shutil.rmtree(self.tree)
        if not self.tree.exists():
            directory.mkdir(parents=True, exist_ok=True)
            _said("git", "clone", "--quiet", "--shared", str(ROOT), str(self.tree), where=ROOT)
            _said("git", "checkout", "--quiet", self.commit, where=self.tree)
        _said("git", "checkout", "--quiet", "--", ".", where=self.tree)
        subprocess.run(["make", "--quiet", "setup"], cwd=self.tree, check=True)

    def source(self, path: str) -> str:
        return (self.tree / path).read_text(encoding="utf-8")

    def tried(self, room: str, mutant: Mutant, weather: bool) -> dict[str, object] | None:
        """What found it, after how many seconds; None if its place is not there any more."""
        found = self._changed(room, mutant)
        if found is None:
            return None
        path, source = found
        began = time.monotonic()
        with self._written(path, source):
            by = self.failing(room, path)
            if not by and weather:
                by = self._asked([*_WEATHER]) and "weather"
        return {"by": by, "seconds": round(time.monotonic() - began, 1)}

    def failing(self, room: str, module: str = "") -> str:
        """The first of the room's tests that fails, those of `module` before others; empty if none does."""
        return self._asked([*_PYTEST, *tests(ROOMS[room], self.tree, module)])

    def _changed(self, room: str, mutant: Mutant) -> tuple[str, str] | None:
        """Its module with the change. A function may have moved to another module of its room."""
        there = [mutant.path] if (self.tree / mutant.path).exists() else []
        for path in [*there, *sources(ROOMS[room], self.tree)]:
            changed = mutated(mutant._replace(path=path), self.source(path))
            if changed is not None:
                return path, changed
        return None

    def _asked(self, arguments: list[str]) -> str:
        """The first test that failed; empty if none did."""
        self._log.unlink(missing_ok=True)
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        command = [self.tree / ".venv/bin/python", *arguments]
        with Process(command, self._log, cwd=self.tree, env=env | {"OMP_NUM_THREADS": "1"}) as process:
            try:
                status = process.wait(_TRIES_SECONDS)
            except Late:
                return "hang"
        if status == 0:
            return ""
        failed = _FAILED.search(self._log.read_text(errors="replace"))
        return failed[1] if failed else f"exit status {status}"

    @contextlib.contextmanager
    def _written(self, path: str, source: str) -> Iterator[None]:
        place = self.tree / path
        before = place.read_bytes()
        place.write_text(source, encoding="utf-8")
        try:
            yield
        finally:
            place.write_bytes(before)


def _said(*command: str, where: Path) -> str:
    done = subprocess.run(command, cwd=where, check=True, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    return done.stdout.strip()

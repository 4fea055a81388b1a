"""docs/results/ablation.json: every finished cell on a line of its own, and the figures that follow from them.

Several processes may add to it: each reads, adds and replaces under a lock, so nothing is lost and nobody reads half.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks import report
from tests.benchmarks.ablation.loop import Ran
from tests.benchmarks.ablation.plan import Cell, changes

DEFAULT = Path(__file__).parents[3] / "docs" / "results" / "ablation.json"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A finished cell."""

    id: str
    experiment: str
    """The one that it was run for; others may share it."""
    arm: str
    warm: int
    seed: int
    setup: dict[str, Any]
    """What differs from the defaults of `Setup`, so that the line can be read by itself."""
    base: str = ""
    """Digest of the checkpoint that it started from; empty where none was recorded. Made on another machine by the same
    recipe, a warm start is another one, and runs from the two are no pair."""
    ran: Ran

    @property
    def curve(self) -> list[tuple[int, float]]:
        return [(point.update, point.success) for point in self.ran.points]

    def family(self, name: str) -> list[tuple[int, float]]:
        """The curve of one kind of task."""
        return [(point.update, point.families[name]) for point in self.ran.points if name in point.families]


Runs = dict[tuple[str, str], Done]
"""Finished cells by id and base."""


class Results:
    """The file.

    Args:
        path: made when the first cell is done.
    """

    def __init__(self, path: Path = DEFAULT) -> None:
        self.path = path

    def read(self) -> Runs:
        """All finished cells."""
        return {(one.id, one.base): one for one in msgspec.convert(self._content().get("cells", []), list[Done])}

    def add(self, cell: Cell, base: str, ran: Ran) -> Done:
        """Keep what `cell` gave from the checkpoint `base`; a cell that is there already is replaced."""
        done = Done(
            id=cell.id, experiment=cell.experiment, arm=cell.arm, warm=cell.warm, seed=cell.seed,
            setup=changes(cell.setup), base=base, ran=ran,
        )  # fmt: skip
        with self._locked() as content:
            others = [
                one for one in content.get("cells", []) if (one["id"], one.get("base", "")) != (done.id, done.base)
            ]
            content["cells"] = [*others, msgspec.to_builtins(done)]
        return done

    def set_figures(self, figures: Mapping[str, float], seeds: list[int]) -> None:
        """Replace the figures; what could not be computed is not among them."""
        with self._locked() as content:
            content["figures"] = {name: round(value, 4) for name, value in figures.items()}
            content["seeds"] = seeds

    def _content(self) -> dict[str, Any]:
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The directory is the lock: a file of its own would lie beside the results in the repository.
        lock = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._content()
            yield content
            lines = {
                "name": "ablation",
                "figures": content.get("figures", {}),
                "machine": report.machine(),
                "versions": report.versions(),
                "seeds": content.get("seeds", []),
            }
            head = json.dumps(lines, indent=1)[:-2]
            cells = ",\n".join("  " + json.dumps(one, separators=(",", ":")) for one in content.get("cells", []))
            aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
            aside.write_text(f'{head},\n "cells": [\n{cells}\n ]\n}}\n', encoding="utf-8")
            aside.replace(self.path)
        finally:
            os.close(lock)

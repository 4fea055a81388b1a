"""The chaos matrix: one installation at work, one fault after another, and an account of every call at the end.

    python -m tests.chaos.matrix --faults 36 --seed 7 --json build/chaos.json

Real processes all: broker, tap, daemon, learner, two engines, and agents that keep a journal of their
own. Each row (process, fault) comes once in random order at a stage that is drawn, then again; every ninth cell is two
at once (`--paired 1`: all of them). After each, calls must be captured and weights be trained anew within `RECOVERY`
seconds. At the end, or after Ctrl-C, the agents' journal is compared with the store. Root, e2fsprogs and a C compiler
are needed.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
from rich.console import Console

from actors.messages import decode
from actors.store.archive import ask
from daemon.demo.accounts import read_journal, trajectory_of
from daemon.demo.world import World, answers
from tests.benchmarks import report
from tests.chaos.faults import ROWS, Clock, Disk, Fault, inject, snapshot
from tests.support.patience import SLOW
from tests.support.swapping import swap_programs

RECOVERY = 60.0
"""Seconds, on an idle machine, within which calls are captured and weights trained again after a fault."""
STAGE = 15.0
"""Seconds, on an idle machine, that are waited for a stage; then the fault comes anyway, and the cell says so."""
CALLS = 10
"""So many more calls in the store show that capture goes on."""
AGENTS = 3
PAIRED = 9
"""Every so manieth cell is two faults at once."""
OVERRIDES = {
    # Small updates, often: within seconds it has to show that learning goes on. Each moves the weights by next to
    # nothing, for of a world that is mastered groups differ in nothing, and there is no update for minutes.
    "train": {"groups": 2, "group_size": 4, "lr": 1e-8},
    "gate": {"every": 12},  # candidates that are equal would have the sandbox's engine most of the time
    "keep": {"versions": 6},
    "runs": {"idle_minutes": 0.3},  # an agent that a fault has cut off does not come back to its run
}
_STORED = "SELECT response_id FROM exchanges WHERE response_id <> ''"
_RUNS = "SELECT body FROM trajectories WHERE source = 'production'"
_BESIDE = "SELECT response_id FROM exchanges WHERE beside AND trajectory_id <> ''"
"""Where the clock jumped in mid-run, a call seems to begin before the one that it follows, and is beside the others."""


class Cell(msgspec.Struct, kw_only=True):
    """One fault, or two at once, and what came of it."""

    faults: tuple[Fault, ...]
    began: float = 0.0
    """Unix seconds."""
    ended: float = 0.0
    """Unix seconds when what agents hold on to was there again."""
    in_stage: bool = True
    hit: bool = True
    """There was something to do it to."""
    seconds: float = -1.0
    """From the fault's end until calls were captured and weights trained; -1: not within the bound."""
    lost: int = 0
    doubled: int = 0
    agent_errors: int = 0
    cut: int = 0
    """Calls that a killed tap or sole engine had in hand, or that came before it was back; and answers of which a
    killed tap had not handed over the record yet."""
    missing: str = ""
    """What did not go on."""


_ONE_PLACE = {"disk", "broker's directory", "nats-server"}
"""What is done to one of them is in the way of what is done to another: no pair is drawn of them."""


def cells(
    number: int, rng: random.Random, paired: int = PAIRED, of: Collection[tuple[str, str]] = tuple(ROWS)
) -> Iterator[Cell]:
    """Each row of `of` once at a drawn stage, in drawn order, and so on."""
    place = 0
    while number > 0:
        rows = rng.sample(list(of), min(number, len(of)))
        number -= len(rows)
        while rows:
            place += 1
            row = rows.pop()
            drawn = [row]
            if place % paired == 0:
                apart = (one for one in rows if one[0] != row[0] and not {one[0], row[0]} <= _ONE_PLACE)
                other = next(apart, None)
                if other is not None:
                    rows.remove(other)
                    drawn.append(other)
            yield Cell(faults=tuple(Fault(*one, rng.choice(ROWS[one])) for one in drawn))


class Matrix:
    """One installation, and what is done to it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.world = World(directory, seed=seed, overrides=OVERRIDES, agents={"agents": AGENTS})
        self._disk = Disk(self.world.config.state, directory.with_suffix(".img"))
        self._clock, self._old = Clock(directory), directory / "broker-before"
        self._shed = Counter[str]()
        self._cut = 0.0
        """When the last tap that was killed was there again (unix seconds)."""
        self.dropped = 0
        """Records that the tap counted as not written."""
        self._stopping = threading.Event()

    def start(self) -> None:
        """All but the disk is as `evolved demo` has it."""
        self._disk.make()
        self._clock.make()
        for child in (self.world.broker, self.world.tap, self.world.daemon, self.world.learner):
            child.extra.update(self._clock.environment)
        self.world.start()
        self.world.agents.start()
        threading.Thread(target=self._keep_alive, daemon=True).start()
        if not self._until(self._has_learned, 2 * RECOVERY):
            raise RuntimeError("no update before the first fault; the logs are in the directory")

    def stop(self) -> None:
        self._stopping.set()
        time.sleep(0.5)
        self.world.stop()
        self._disk.drop()

    def _keep_alive(self) -> None:
        """What systemd does, two times a second."""
        while not self._stopping.wait(0.5):
            self.world.check()

    def _until(self, done: Callable[[], object], seconds: float) -> bool:
        end = time.monotonic() + seconds * SLOW
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _progress(self) -> tuple[int, int] | None:
        """Calls in the store and updates so far; None while the daemon does not answer."""
        status = self.world.get("/api/status")
        return (int(status["counts"]["exchanges"]), int(status["trained"])) if status else None

    def _has_learned(self) -> bool:
        progress = self._progress()
        return progress is not None and progress[1] > 0

    def _count_drops(self) -> None:
        """Take over the tap's counts of what it did not write; one that was killed begins anew."""
        try:
            text = httpx.get(f"http://{self.world.config.tap.admin}/metrics", timeout=5.0).text
        except httpx.TransportError:
            return
        for line in text.splitlines():
            if line.startswith("evolved_tap_spool_shed_total"):
                name, _, value = line.rpartition(" ")
                now = int(float(value))
                self.dropped += now - self._shed[name] if now >= self._shed[name] else now
                self._shed[name] = now

    def _stage(self, name: str) -> bool:
        """Wait for a stage of a call's way, or of a version's; whether it came."""
        state = self.world.config.state
        match name:
            case "capture":
                spool = self._spooled()
                return self._until(lambda: self._spooled() != spool, STAGE)
            case "update":
                before = set(os.listdir(state / "batches"))
                return self._until(lambda: set(os.listdir(state / "batches")) - before, STAGE)
            case "version":
                before = set(os.listdir(state / "versions"))
                return self._until(lambda: set(os.listdir(state / "versions")) - before, STAGE)
            case "swap":
                return self._swapping()
            case _:
                time.sleep(self._rng.random() / 2)
                return True

    def _spooled(self) -> int:
        return sum(one.stat().st_size for one in self.world.config.spool.rglob("*.seg"))

    def _swapping(self) -> bool:
        """Order the newest version in, and wait until it is being swapped."""
        state = self.world.config.state

        def ordered() -> bool:
            serving = (self.world.get("/api/status") or {}).get("serving") or {}
            known = sorted(int(one.name[1:]) for one in (state / "versions").glob("v[0-9]*"))
            other = [one for one in known if one != serving.get("version")]
            order = {"version": other[-1] if other else -1, "force": True, "reason": "chaos"}
            return bool(other) and self.world.post("/api/promote", order)

        return self._until(ordered, STAGE) and self._until(lambda: swap_programs(state), STAGE)

    def attempt(self, cell: Cell) -> None:
        """One fault, and the way back."""
        if any(one.action == "rolled back" for one in cell.faults):
            snapshot(self.world, self._old)
            time.sleep(2.0)
        self._count_drops()
        cell.in_stage = self._stage(cell.faults[-1].stage)
        cell.began = time.time()
        if any(one.ends_tap for one in cell.faults):
            # The calls that it has in hand then are this cell's, and cut off; none may be of the time before.
            self._until(lambda: not self._in_hand(cell.began), STAGE)
        with ThreadPoolExecutor(len(cell.faults)) as pool:
            done = [
                pool.submit(inject, one, self.world, self._disk, self._clock, self._old, self._rng.random())
                for one in cell.faults
            ]
            cell.hit = all([one.result() for one in done])
        over = time.monotonic()
        cell.ended = float("inf")
        if any(one.cuts_agents for one in cell.faults):
            time.sleep(0.6)
            admin = f"http://{self.world.config.tap.admin}/healthz"
            there = (admin, f"{self.world.tap_url}/health", f"{self.world.serving_url}/health")
            self._until(lambda: all(map(answers, there)), RECOVERY)
        cell.ended = time.time() + 1.0
        first: tuple[int, int] | None = None
        last: tuple[int, int] | None = None

        def onward() -> bool:
            # Counted from the first answer after the fault: what was on its way before it is no progress.
            nonlocal first, last
            last = self._progress()
            first = first or last
            return first is not None and last is not None and last[0] > first[0] + CALLS and last[1] > first[1]

        if self._until(onward, RECOVERY):
            cell.seconds = time.monotonic() - over
        else:
            cell.missing = f"(calls, updates) {first} -> {last}"
        if any(one.ends_tap for one in cell.faults):
            self._cut = cell.ended
        self._count_drops()

    def _in_hand(self, until: float) -> set[str]:
        """Response ids that agents saw by then (unix seconds), and not since before a tap was killed, that no call has.

        Until its record is on disk, the tap holds it: seconds, where the disk could not be written.
        """
        events = [one for one in read_journal(self.world.journal) if one["event"] == "response"]
        seen = {str(one["id"]) for one in events if self._cut < float(one["time"]) <= until}  # type: ignore[arg-type]
        return seen - self._stored()

    def _stored(self) -> set[str]:
        return {row[0] for row in ask(self.world.config.store_url, lambda link: link.exec_driver_sql(_STORED).all())}

    def settle(self, cells: list[Cell]) -> int:
        """Let everything arrive, and put each call that is lost, doubled or failed down to its cell."""
        self.world.agents.stop(60)
        self._until(lambda: not any(self._books()), RECOVERY)
        self._count_drops()
        (lost, doubled), stored = self._books(), self._stored()
        events = read_journal(self.world.journal)
        seen = {str(one["id"]): float(one["time"]) for one in events if one["event"] == "response"}  # type: ignore[arg-type]
        for found, name in ((lost, "lost"), (doubled, "doubled")):
            for one in found:
                cell = self._cell(cells, seen[one])
                # The scribe may be stopped at that moment, and records wait for it in the tap's memory.
                in_hand = name == "lost" and seen[one] <= cell.ended and any(f.ends_tap for f in cell.faults)
                what = "cut" if in_hand else name
                setattr(cell, what, getattr(cell, what) + 1)
                if what == "lost":
                    where = "in no run" if one in stored else "not stored"
                    at = seen[one] - cell.began
                    print(f"  {one} is {where}: answered {at:.2f} s after {cell.faults} began", file=sys.stderr)
        for one in events:
            if one["event"] in ("failed", "feedback_failed"):
                at = float(one["time"])  # type: ignore[arg-type]
                cell = self._cell(cells, at)
                excused = at <= cell.ended and any(fault.cuts_agents for fault in cell.faults)
                if excused:
                    cell.cut += 1
                else:
                    cell.agent_errors += 1
                    print(f"  an agent's error at {cell.faults}: {one.get('error', 'feedback')}", file=sys.stderr)
        return len(seen)

    @staticmethod
    def _cell(cells: list[Cell], at: float) -> Cell:
        """The last one that had begun."""
        return [one for one in cells if one.began <= at][-1] if cells[0].began <= at else cells[0]

    def _books(self) -> tuple[set[str], set[str]]:
        """Response ids that agents saw: those that no call or no trajectory of the store has, and those in two."""
        url = self.world.config.store_url
        seen = {str(one["id"]) for one in read_journal(self.world.journal) if one["event"] == "response"}
        ids = Counter(row[0] for row in ask(url, lambda link: link.exec_driver_sql(_STORED).all()))
        bodies = ask(url, lambda link: link.exec_driver_sql(_RUNS).all())
        steps = Counter(step.response_id for row in bodies for step in trajectory_of(decode(row[0])).steps)
        steps.update(row[0] for row in ask(url, lambda link: link.exec_driver_sql(_BESIDE).all()))
        return {one for one in seen if not (ids[one] and steps[one])}, {
            one for one in seen if ids[one] > 1 or steps[one] > 1
        }


def table(found: list[Cell], console: Console) -> None:
    """One line a cell."""
    rows = [
        (
            " + ".join(map(str, one.faults)), "yes" if one.in_stage else "no", "yes" if one.hit else "no",
            str(one.lost), str(one.doubled), str(one.agent_errors), str(one.cut),
            f"{one.seconds:.1f}" if one.seconds >= 0 else "never", one.missing,
        )
        for one in found
    ]  # fmt: skip
    columns = ("fault", "in stage", "hit", "lost", "doubled", "agent errors", "cut off", "recovered in s", "missing")
    report.table("chaos matrix", columns, rows, console)


def play(matrix: Matrix, planned: Iterable[Cell], minutes: float = 0.0) -> tuple[list[Cell], dict[str, int]]:
    """Start it, try one cell after the other and settle: the cells and figures."""
    began, done = time.monotonic(), list[Cell]()
    try:
        matrix.start()
        # Ctrl-C ends an open-ended matrix, and what was tried is settled.
        with contextlib.suppress(KeyboardInterrupt):
            for cell in planned:
                if minutes and time.monotonic() - began > 60 * minutes:
                    break
                matrix.attempt(cell)
                done.append(cell)
                took = f"{cell.seconds:.1f} s" if cell.seconds >= 0 else f"NOT RECOVERED {cell.missing}"
                print(f"{len(done):3} {' + '.join(map(str, cell.faults))}: {took}", flush=True)
        calls = matrix.settle(done)
    finally:
        matrix.stop()
    return done, {
        "faults": sum(len(one.faults) for one in done if one.hit),
        "lost": max(0, sum(one.lost for one in done) - matrix.dropped),
        "doubled": sum(one.doubled for one in done),
        "agent_errors": sum(one.agent_errors for one in done),
        "not_recovered": sum(one.seconds < 0 for one in done),
        "cut": sum(one.cut for one in done),
        "dropped": matrix.dropped,
        "calls": calls,
        "seconds": round(time.monotonic() - began),
    }


def main() -> int:
    """The matrix; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=len(ROWS))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--paired", type=int, default=PAIRED, help="every so manieth cell is two faults at once")
    parser.add_argument("--only", nargs="+", metavar="PROCESS:ACTION", help="these rows, such as daemon:kill disk:full")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no further fault after so long; 0: no limit")
    parser.add_argument("--directory", type=Path, default=Path("build/chaos"))
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the chaos matrix mounts a small disk: run it as root, on a machine of its own")
    rows = [tuple(one.split(":")) for one in told.only or map(":".join, ROWS)]
    if unknown := [":".join(row) for row in rows if row not in ROWS]:
        sys.exit(f"--only: no row {', '.join(unknown)}; there are {', '.join(map(':'.join, ROWS))}")
    matrix = Matrix(told.directory.absolute(), told.seed)
    planned = cells(told.faults, random.Random(told.seed), told.paired, rows)
    done, figures = play(matrix, planned, told.minutes)
    table(done, Console(width=170))
    reached = {(fault.process, fault.action) for cell in done for fault in cell.faults}
    print("rows not reached:", ", ".join(map(":".join, set(rows) - reached)) or "none")
    print(json.dumps(figures))
    if told.json:
        told.json.parent.mkdir(parents=True, exist_ok=True)
        whole = {**figures, "seed": told.seed, "cells": msgspec.to_builtins(done)}
        told.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    broken = figures["lost"] + figures["doubled"] + figures["agent_errors"] + figures["not_recovered"]
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

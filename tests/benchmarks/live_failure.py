"""A drill: production begins to fail at something that the sandbox does not play. Does it learn that, by itself?

    python -m tests.benchmarks.live_failure --json build/live_failure.json
    python -m tests.benchmarks.live_failure --control --json build/live_failure_control.json

All processes of `evolved demo`. The agents bring the kinds of ticket of `--mix`, which the sandbox plays too, until the
policy has had `--warm` updates. Then they begin to bring tickets of `--kind` alone, which the sandbox's mix does not
have; nobody tells evolved. Their failures become tasks (of the environment where its usual mix has that kind, else
self-made in its worlds), are learned from in the sandbox, go through the gate and are swapped in. Measured are the
failure rate that the agents see, window by window, and the success of what serves on held-out tasks of that kind. With
`--control` no task is made of failures: what rises there too was learned from production itself, or from other kinds.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from adapters.engines.vllm import VllmEngine
from adapters.environments.travel import TravelDesk
from daemon.demo.measure import Success, held_out
from daemon.demo.world import World
from tests.benchmarks import report

NO_TASKS = {"tasks": {"mixture": {"share": 0.0}, "failures": {"enabled": False}}}


class Episode(msgspec.Struct):
    """A line of the agents' journal."""

    event: str
    time: float
    outcome: float = 0.0


class Drill:
    """One run of the story."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self._options = options
        overrides: dict[str, Any] = {
            "rollout": {"families": options.mix},
            "probe": {"families": options.mix},
            "curator": {"replay_share": 0.25, "mix_share": 0.125},
            "tasks": {
                "mixture": {"share": options.share, "scale": options.scale},
                "failures": {"families": options.worlds},
            },
        }
        if options.control:
            overrides |= NO_TASKS
        if options.no_production:
            overrides["curator"] |= {"production_share": 0.0}
        if not options.experience:
            overrides["navigator"] = {"enabled": False}
        self.world = World(directory, seed=options.seed, overrides=overrides, agents={"families": options.mix})

    def run(self) -> dict[str, float]:
        """The figures; whatever happens, every process is stopped."""
        options = self._options
        try:
            self.say("starting")
            self.world.start()
            self.world.agents.start()
            self.say(f"agents bring {options.mix} until {options.warm} updates")
            self.watch(lambda: self.status().get("trained", 0) >= options.warm, options.minutes * 60)
            before = self.success()
            self.say(f"held-out success at {options.kind}: {before}; from now on agents bring {options.kind} alone")
            trained, served = self.status().get("trained", 0), self.served()
            began = time.time()
            self.world.rehire(families=options.kind)
            made = first_swap = -1.0

            def finished() -> bool:
                nonlocal made, first_swap
                now = time.time() - began
                if made < 0 and self.tasks():
                    made = now
                    self.say(f"{len(self.tasks())} tasks after {now:.0f} s")
                if first_swap < 0 and made >= 0 and self.served() != served:
                    first_swap = now
                    self.say(f"v{self.served()} serves after {now:.0f} s")
                return self.status().get("trained", 0) >= trained + options.updates

            self.watch(finished, options.minutes * 60)
            self.world.post("/api/freeze", {"reason": "drill: learning is over"})
            self.watch(lambda: False, options.settle)
            windows = self.windows(began)
            after = self.success()
            self.world.agents.stop(30)
            status, tasks = self.status(), self.tasks()
            gate = (self.world.get("/api/success") or {}).get("gate", [])
            counts = (self.world.get("/api/tasks") or {}).get("counts", {})
            self.say("the gate: " + ", ".join(f"v{one['version']} {one['decision']}" for one in gate))
            return {
                "success_before": before.rate, "success_before_low": before.low, "success_before_high": before.high,
                "success_after": after.rate, "success_after_low": after.low, "success_after_high": after.high,
                **{f"failure_rate_{number}": 1.0 - rate for number, (rate, _) in enumerate(windows)},
                "failure_rate_first": 1.0 - windows[0][0] if windows else 1.0,
                "failure_rate_last": 1.0 - windows[-1][0] if windows else 1.0,
                "runs": sum(count for _, count in windows),
                "tasks": len(tasks), "self_made": sum(one["origin"] == "production" for one in tasks),
                "attempts_at_tasks": sum(one["tried"] for one in tasks),
                "attempts_that_succeeded": sum(one["solved"] for one in tasks),
                "seconds_to_tasks": made, "seconds_to_swap": first_swap,
                "updates": status.get("trained", 0) - trained,
                "promoted": sum(one["decision"] == "promote" for one in gate),
                **counts,
            }  # fmt: skip
        finally:
            self.world.stop()

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def watch(self, finished: Callable[[], bool], seconds: float) -> None:
        """Keep the processes alive until `finished` or the time is up."""
        end, told = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end and not finished():
            self.world.check()
            if time.monotonic() - told > 20.0:
                told = time.monotonic()
                self.say(f"v{self.status().get('trained', 0)} trained, v{self.served()} serves")
            time.sleep(1.0)

    def status(self) -> dict[str, Any]:
        return self.world.get("/api/status") or {}

    def served(self) -> int:
        return (self.status().get("serving") or {}).get("version", 0)

    def tasks(self) -> Sequence[dict[str, Any]]:
        return (self.world.get("/api/tasks") or {}).get("tasks", [])

    def success(self) -> Success:
        """Of what serves now, on held-out tasks of the new kind."""

        async def measure() -> Success:
            async with VllmEngine(self.world.serving_url, name="serving") as engine:
                return await held_out(
                    engine, TravelDesk(), self._options.tasks, temperature=1.0, families=self._options.kind,
                    seed=self._options.seed,
                )  # fmt: skip

        return anyio.run(measure)

    def windows(self, began: float) -> list[tuple[float, int]]:
        """Success and number of the agents' episodes since `began`, in windows of equal numbers."""
        lines = self.world.journal.read_text(encoding="utf-8").splitlines()
        episodes = [msgspec.json.decode(line, type=Episode) for line in lines if '"episode"' in line]
        outcomes = [one.outcome for one in episodes if one.time >= began]
        size = max(1, -(-len(outcomes) // self._options.windows))
        parts = [outcomes[at : at + size] for at in range(0, len(outcomes), size)]
        return [(sum(part) / len(part), len(part)) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="C", help="kind of ticket that agents begin to bring (C)")
    parser.add_argument("--mix", default="AB", help="kinds that agents bring before, and that the sandbox plays (AB)")
    parser.add_argument("--worlds", default="", help="kinds whose worlds failures may use (the desk's usual mix)")
    parser.add_argument("--warm", type=int, default=6, help="updates before the new kind comes (6)")
    parser.add_argument("--updates", type=int, default=18, help="updates after it came (18)")
    parser.add_argument("--minutes", type=float, default=8.0, help="for each of the two, at the most (8)")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds of traffic after learning has stopped (30)")
    parser.add_argument("--share", type=float, default=0.5, help="share of tasks made here in a round (0.5)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the advantages of self-made tasks (1)")
    parser.add_argument("--tasks", type=int, default=128, help="held-out tasks per measurement (128)")
    parser.add_argument("--windows", type=int, default=6, help="windows of the failure rate (6)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", action="store_true", help="make no tasks of failures")
    parser.add_argument("--no-production", action="store_true", help="train on sandbox groups alone")
    parser.add_argument("--experience", action="store_true", help="give lessons too; the drill is about tasks")
    parser.add_argument("--directory", type=Path, help="where its files go (a temporary directory)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = Drill(options.directory or Path(name) / "drill", options).run()
    rows = [(key.replace("_", " "), f"{value:.3g}") for key, value in figures.items()]
    title = f"Tickets of kind {options.kind}, sandbox plays {options.mix}" + (", control" if options.control else "")
    report.table(title, ("", "value"), rows)
    report.write(options.json, "live_failure_control" if options.control else "live_failure", figures, [options.seed])


if __name__ == "__main__":
    main()

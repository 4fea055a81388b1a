"""The demo's story: measure, let the agents work while evolved learns, measure again, settle the accounts.

Three variants of one story, in either of two worlds. The plain one trains from sandbox groups and production; `drift`
renames tools in mid-run; `traffic_only` has no sandbox. In none of them does this module touch the model, the weights
or the agents' prompts: it starts processes, measures from outside, and in the drift variant changes the desk.
"""

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import anyio
import msgspec
from rich.console import Console

from actors.rollout.errors import EpisodeLost
from adapters.engines.vllm import VllmEngine
from daemon.cli.output import OutputTable
from daemon.demo.accounts import Accounts, settle
from daemon.demo.measure import Success, held_out
from daemon.demo.view import View
from daemon.demo.world import World
from daemon.demo.worlds import WORLDS
from daemon.errors import StartFailed
from daemon.settings import toml

T = TypeVar("T")

TRAFFIC_ONLY: dict[str, Any] = {
    "sandbox": {"environment": ""},
    "train": {"lr": 5e-4, "mini_batches": 1},
}
"""No sandbox: the learning rate that the prototype bore with one trajectory a prompt. Every rule is the product's."""

FOLLOW_UPS: dict[str, Any] = {"train": {"provisional": True}}

NO_EXPERIENCE: dict[str, Any] = {"lessons": {"per_prompt": 0}}

LEVEL_LOOKS = 3
LEVEL_ROOM = 0.09
"""Success is level when the 95 % intervals of the last three looks, taken together, are no wider than nine points.
That the looks differ by no more than chance is not enough: of 192 tasks chance is 7 points either way at 50 %, and a
rise of 6 points a look would pass for level. At 94 % the interval of 192 tasks is 7 points wide, at 90 % nearly 9.
Below that so few tasks cannot tell level from rising, and the updates or the time end the run. Three looks at one
version say nothing of what learning still brings: of the last three two at least are at different ones."""

LOOKS = 6
"""In a run that goes on to its most updates. In the plain demo that is one every four updates, so that the gate judges
another candidate in between, and three looks see eight updates."""

PATIENCE = 60.0
"""Seconds for a daemon that does not answer: on a busy machine it is slow, and one that died is started again."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `evolved demo` was asked for."""

    directory: Path
    world: str = "travel"
    """A key of `WORLDS`."""
    feedback: float = 1.0
    """Share of the agents' episodes whose outcome is reported, 0 to 1."""
    delay: float = 1.0
    """Seconds between the end of an episode and its report, on average; half and one and a half times that at most."""
    follow_ups: bool = False
    """Customers say afterwards what they think of it, and runs that nobody reported train on what is made of that."""
    seed: int = 0
    drift: bool = False
    traffic_only: bool = False
    experience: bool = True
    updates: int | None = None
    """Stop after this many updates, traffic only: per 8 trajectories; none: when success is level, after `most` at the
    latest."""
    minutes: float = 7.0
    """Stop at the latest after this time at work, set-up and the measuring before and after it not counted."""
    tasks: int = 192
    """Held-out tasks per measurement."""
    vllm: Path | None = None
    """Interpreter of an environment with vLLM; none: the embedded engine serves."""
    overrides: dict[str, Any] = {}

    @property
    def most(self) -> int:
        """Updates after which learning stops at the latest."""
        return self.updates or (60 if self.traffic_only else 12 if self.drift else 24)

    @property
    def looks(self) -> bool:
        """Whether learning stops when success is level. Twelve updates before a drift are too few for that."""
        return not self.updates and not self.drift


class Held(msgspec.Struct, frozen=True):
    """One measurement on held-out tasks, sampled at T=1 and greedy."""

    sampled: Success
    greedy: Success


class Look(msgspec.Struct, frozen=True):
    """Held-out success, sampled, while the agents work."""

    version: int
    success: Success


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    before: Held
    after: Held
    versions: tuple[int, ...]
    swaps: int
    updates: int
    accounts: Accounts
    shares: dict[str, float]
    seconds: float
    drift: dict[str, float] = {}


class Scenario:
    """Runs one variant; `run()` returns its report."""

    def __init__(self, options: Options, view: View) -> None:
        self._options, self._view = options, view
        overrides: dict[str, Any] = {}
        if options.traffic_only:
            overrides = TRAFFIC_ONLY
        elif not options.experience:
            overrides = NO_EXPERIENCE
        agents: dict[str, Any] = {"agents": 8, "think": 0.01} if options.traffic_only else {}
        agents |= {"feedback": options.feedback, "feedback_delay": options.delay, "follow_ups": options.follow_ups}
        if options.follow_ups:
            overrides = toml.merge(overrides, FOLLOW_UPS)
        self._place = WORLDS[options.world]
        self.world = World(
            options.directory, seed=options.seed, overrides={**overrides, **options.overrides}, agents=agents,
            world=options.world, vllm=options.vllm,
        )  # fmt: skip
        self._desk = self._place.environment(self.world.drift)

    def run(self) -> Report:
        """The whole story; whatever happens, every process is stopped.

        Raises:
            StartFailed: a process did not come up, or died too often.
        """
        started = time.monotonic()
        try:
            self._view.stage("starting broker and engines")
            self.world.start_engines()
            self._view.stage(f"measuring the warm start on {self._options.tasks} held-out tasks")
            before = self._held_out()
            self._view.stage("starting tap, daemon and learner")
            self.world.start()
            self._view.stage(f"dashboard: {self.world.control_url}/  files: {self.world.directory}")
            self.world.agents.start()
            drift = self._drift() if self._options.drift else self._learn()
            self._view.stage("agents finish their episodes; the books are brought up to date")
            self.world.agents.stop(30 + 1.5 * self._options.delay)
            self._settle()
            self._view.stage("measuring what serves now")
            after = self._held_out()
            status = self._answer("/api/status")
            swapped = [s for s in self._answer("/api/success")["swaps"] if s["result"] == "swapped"]
            return Report(
                before=before,
                after=after,
                versions=tuple(s["version"] for s in swapped),
                swaps=len(swapped),
                updates=status["trained"],
                accounts=settle(self.world.journal, self.world.config.store_url),
                shares=status["shares"],
                seconds=time.monotonic() - started,
                drift=drift,
            )
        finally:
            self.world.stop()

    def _learn(self) -> dict[str, float]:
        """Until success is level, the updates are done, or the time is up."""
        options, most = self._options, self._options.most
        until = f"until success is level, after {most} updates" if options.looks else f"{most} updates"
        self._view.stage(f"agents at work; learning, {until} or {options.minutes:.0f} minutes at the latest")
        end, due, seen = time.monotonic() + options.minutes * 60, 0, list[Look]()
        while not level(seen):
            status = self._watch(partial(self._learned, due=due), end - time.monotonic())
            if status is None or status["trained"] >= most:
                break
            seen += self._look(served(status))
            due = status["trained"] + max(1, most // LOOKS)
        if level(seen):
            # What serves was looked at: no candidate is waited for that would be no better.
            self._view.stage("success is level; learning stops")
            self._order("freeze", "demo: success is level")
        else:
            self._last_swap()
        return {}

    def _learned(self, status: dict[str, Any], due: int) -> float:
        """Share of the updates, and 1 where the next look is due; before the first swap nothing is level."""
        look = self._options.looks and served(status) > 0 and status["trained"] >= due
        return 1.0 if look else status["trained"] / self._options.most

    def _look(self, version: int) -> list[Look]:
        """How well what serves does; empty if the engine broke off, which must not end the story."""
        found: list[Look] = []
        try:
            found = [Look(version, self._sampled())]
            self._view.stage(f"v{version} serves: held-out success {found[0].success}")
        except* EpisodeLost as lost:
            self._view.stage(f"v{version} serves; it could not be measured: {lost.exceptions[0]}")
        return found

    def _drift(self) -> dict[str, float]:
        """Learn, rename a tool under the agents, and watch it come back."""
        self._learn()
        was = self._sampled().rate
        self._order("thaw", "demo: the desk is about to change")
        renamed = self._place.drift(self.world.drift, self._options.seed)
        self._view.stage(f"held-out success {100 * was:.0f} %; the desk has renamed {renamed}, nobody is told")
        changed = time.monotonic()
        low = now = self._sampled().rate
        self._view.stage(f"held-out success after the rename: {100 * low:.0f} %")
        seen, recovered = served(self._answer("/api/status")), -1.0
        end = changed + self._options.minutes * 60
        while recovered < 0:
            status = self._watch(lambda status, seen=seen: float(served(status) != seen), end - time.monotonic())
            if status is None:
                break
            seen = served(status)
            now = self._sampled().rate
            self._view.stage(f"v{seen} serves: held-out success {100 * now:.0f} %")
            if now >= was - 0.10:
                recovered = time.monotonic() - changed
        self._order("freeze", "demo: learning is over")
        return {"drift_before": was, "drift_low": low, "drift_after": now, "drift_seconds": recovered}

    def _watch(self, progress: Callable[[dict[str, Any]], float], seconds: float) -> dict[str, Any] | None:
        """Keep the processes alive and the person informed until `progress` is 1 or the time is up.

        Args:
            progress: of an answer to `/api/status`; a request without an answer says nothing.

        Returns:
            The answer that `progress` was 1 for, None if the time is up.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.world.check()
            status = self.world.get("/api/status")
            if status is not None:
                done = progress(status)
                success = self.world.get("/api/success") or {"points": []}
                # Whichever ends it first: what is waited for may come all at once.
                shown = min(1.0, max(done, 1.0 - (end - time.monotonic()) / seconds))
                self._view.update(shown, status, [point["rate"] for point in success["points"]][-60:])
                if done >= 1.0:
                    return status
            time.sleep(1.0)
        return None

    def _last_swap(self) -> None:
        """Stop learning and let the gate and the swapper finish with the newest candidate."""
        self._view.stage("learning stops; the gate looks at the newest candidate")
        newest = self._answer("/api/status")["trained"]
        self._watch(lambda status: float(self._judged(newest)), 30.0)
        self._watch(lambda status: float(served(status) == self._promoted()), 15.0)
        self._order("freeze", "demo: learning is over")

    def _judged(self, newest: int) -> bool:
        gate = (self.world.get("/api/success") or {}).get("gate", [])
        return bool(gate) and gate[-1]["version"] >= newest

    def _promoted(self) -> int | None:
        """The newest version that the gate let pass, 0 if there is none; None: unknown."""
        success = self.world.get("/api/success")
        if success is None:
            return None
        return max((entry["version"] for entry in success["gate"] if entry["decision"] == "promote"), default=0)

    def _answer(self, path: str) -> dict[str, Any]:
        """What the daemon answers, asked until it does."""
        return self._patiently(lambda: self.world.get(path), path)

    def _order(self, kind: str, reason: str) -> None:
        """Give an order until it is taken: a story goes wrong whose thaw was not heard."""
        self._patiently(lambda: self.world.post(f"/api/{kind}", {"reason": reason}) or None, f"/api/{kind}")

    def _patiently(self, ask: Callable[[], T | None], path: str) -> T:
        end = time.monotonic() + PATIENCE
        while (answer := ask()) is None:
            self.world.check()
            if time.monotonic() > end:
                raise StartFailed(f"the daemon did not answer {path}; see {self.world.daemon.log_path}")
            time.sleep(1.0)
        return answer

    def _settle(self) -> None:
        """Wait until the store has what the agents saw, a minute at most; what is missing then counts as lost."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.world.check()
            accounts = settle(self.world.journal, self.world.config.store_url)
            if accounts.lost == 0 and accounts.outcomes >= accounts.reported:
                return
            time.sleep(1.0)

    def _held_out(self) -> Held:
        return Held(self._sampled(), self._measure(self._options.tasks // 2, 0.0))

    def _sampled(self) -> Success:
        return self._measure(self._options.tasks, 1.0)

    def _measure(self, tasks: int, temperature: float) -> Success:
        """Success of what serves now; the same tasks each time."""

        async def measure() -> Success:
            async with VllmEngine(self.world.serving_url, name="serving") as engine:
                return await held_out(
                    engine,
                    self._desk,
                    tasks,
                    temperature=temperature,
                    families=self._place.families,
                    seed=self._options.seed,
                )

        return anyio.run(measure)


def served(status: dict[str, Any]) -> int:
    """The version that serves, of an answer to `/api/status`; 0 before the first swap."""
    return (status["serving"] or {"version": 0})["version"]


def level(seen: Sequence[Look]) -> bool:
    """Whether success has stopped moving, as far as so many tasks can tell; see `LEVEL_ROOM`."""
    last = seen[-LEVEL_LOOKS:]
    if len(last) < LEVEL_LOOKS or len({one.version for one in last}) < 2:
        return False
    return max(one.success.high for one in last) - min(one.success.low for one in last) <= LEVEL_ROOM


def show(report: Report, options: Options, console: Console) -> None:
    """The table at the end."""
    table = OutputTable("figure", "before", "after", title="evolved demo")
    table.add_row("held-out success, sampled", str(report.before.sampled), str(report.after.sampled))
    table.add_row("held-out success, greedy", str(report.before.greedy), str(report.after.greedy))
    books = report.accounts
    rows = {
        "versions served": _chain(report.versions),
        "updates": str(report.updates),
        "swaps under load": str(report.swaps),
        "agents' requests": str(books.requests),
        "failed requests": str(books.failed),
        "calls lost / doubled": f"{books.lost} / {books.doubled}",
        "episodes / reported / joined": f"{books.episodes} / {books.reported} / {books.outcomes}",
        "trained from production / sandbox": f"{100 * report.shares.get('production', 0):.0f} % / "
        f"{100 * report.shares.get('sandbox', 0):.0f} %",
        "time": f"{report.seconds:.0f} s",
    }
    for name, value in rows.items():
        table.add_row(name, "", value)
    if report.drift:
        figures = report.drift
        table.add_section()
        table.add_row("success before the rename", "", f"{100 * figures['drift_before']:.0f} %")
        table.add_row("right after it", "", f"{100 * figures['drift_low']:.0f} %")
        seconds = figures["drift_seconds"]
        table.add_row("in the end", "", f"{100 * figures['drift_after']:.0f} %")
        table.add_row("recovered after", "", f"{seconds:.0f} s" if seconds >= 0 else "not within the time")
    console.print(table)
    if books.missing:
        console.print(f"lost: {', '.join(books.missing)}; look for them in the spool and the logs under --dir")


def _chain(versions: tuple[int, ...]) -> str:
    """The versions that served, the middle left out where they are many."""
    names = ["v0", *(f"v{number}" for number in versions)]
    return " → ".join(names if len(names) <= 8 else [*names[:4], "…", *names[-2:]])


def figures(report: Report, options: Options) -> dict[str, Any]:
    """The JSON that `--json` writes."""
    books = report.accounts
    return {
        "name": _name(options),
        "figures": {
            "success_before": report.before.sampled.rate,
            "success_after": report.after.sampled.rate,
            "greedy_before": report.before.greedy.rate,
            "greedy_after": report.after.greedy.rate,
            "swaps": report.swaps,
            "updates": report.updates,
            "requests": books.requests,
            "failed": books.failed,
            "lost": books.lost,
            "doubled": books.doubled,
            "episodes": books.episodes,
            "reported": books.reported,
            "outcomes": books.outcomes,
            "production_share": report.shares.get("production", 0.0),
            "seconds": round(report.seconds, 1),
            **report.drift,
        },
        "machine": {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()},
        "versions": {"python": platform.python_version(), "evolved": version("evolved"), "torch": version("torch")},
        "seeds": [options.seed],
        "agents": {"feedback": options.feedback, "delay": options.delay, "follow_ups": options.follow_ups},
    }


def _name(options: Options) -> str:
    """Which variant of the story it was."""
    parts = {"service": options.world == "service", "drift": options.drift, "traffic-only": options.traffic_only}
    return "-".join(["demo", *(part for part, told in parts.items() if told)])


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """A demo that is told to end must not leave its processes behind; told twice, it is still at that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def run(options: Options, console: Console, json_path: Path | None) -> Report:
    """`evolved demo`: run, show, and write the figures."""
    title = "evolved " + _name(options).replace("-", " ")
    signal.signal(signal.SIGTERM, _end)
    with View(console, f"{title}, seed {options.seed}") as view:
        report = Scenario(options, view).run()
    show(report, options, console)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(figures(report, options), indent=2) + "\n", encoding="utf-8")
        console.print(f"figures in {json_path}")
    return report
